// Accepted tokens to text that may be shown: valid UTF-8, no part of a stop text.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace coppice {

/// Stop texts are looked for in the text with its special tokens spelt out; those are not shown.
class TextStream {
 public:
  explicit TextStream(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  /// Appends one token: the bytes that it shows, and for a token that shows none the text that
  /// spells it. True when a stop text is now complete; nothing may be pushed after that.
  bool push(std::string_view bytes, std::string_view hidden = {});
  /// Text that became safe to show since the last call; `last` releases what was held back (a
  /// cut-off UTF-8 sequence becomes U+FFFD).
  std::string release(bool last);
  /// Tokens that lie before the stop text, as they are spelt (all tokens while there is none).
  std::size_t tokens_before_stop() const;

 private:
  /// Bytes shown and bytes spelt up to the end of a token.
  struct End {
    std::size_t shown, spelt;
  };
  std::size_t tokens_within(std::size_t spelt) const;
  /// Bytes shown of the first `spelt` bytes spelt.
  std::size_t shown_within(std::size_t spelt) const;

  std::vector<std::string> stops_;
  std::string shown_, spelt_;  ///< of all tokens, cut at the stop text
  std::vector<End> ends_;      ///< by token, before any cut
  std::size_t released_ = 0;   ///< of shown_
  std::size_t clear_ = 0;      ///< no stop text begins before this byte of spelt_
  bool stopped_ = false;
};

}  // namespace coppice
