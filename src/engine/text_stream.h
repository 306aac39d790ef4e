// Bytes of accepted tokens to text that may be shown: valid UTF-8, no part of a stop text.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace coppice {

class TextStream {
 public:
  explicit TextStream(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  /// Appends one token's bytes. True when a stop text is now complete; nothing may be pushed
  /// after that.
  bool push(std::string_view bytes);
  /// Text that became safe to show since the last call; `last` releases what was held back (a
  /// cut-off UTF-8 sequence becomes U+FFFD).
  std::string release(bool last);
  /// Tokens whose bytes all lie before the stop text (all tokens while there is none).
  std::size_t tokens_before_stop() const;

 private:
  std::vector<std::string> stops_;
  std::string bytes_;                   ///< of all tokens, cut at the stop text
  std::vector<std::size_t> token_end_;  ///< by token, before any cut
  std::size_t released_ = 0;
  bool stopped_ = false;
};

/// `bytes` with every byte that is not part of valid UTF-8 replaced by U+FFFD.
std::string to_valid_utf8(std::string_view bytes);

}  // namespace coppice
