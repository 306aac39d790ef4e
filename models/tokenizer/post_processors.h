// Post-processors of tokenizer.json: what stands around the tokens of a text.
#pragma once

#include <span>
#include <vector>

#include "base/types.h"
#include "models/tokenizer/json_place.h"

namespace coppice::tokenization {

/// A template. Of ByteLevel nothing remains: it moves offsets only.
class PostProcessors {
 public:
  PostProcessors() = default;
  /// `pieces`: ids end there.
  PostProcessors(const JsonPlace& place, TokenId pieces) { read(place, pieces); }
  std::vector<TokenId> apply(std::vector<TokenId> tokens) const;
  /// What stands around a text, its place among them as -1.
  std::span<const TokenId> frame() const { return template_; }

 private:
  static constexpr TokenId the_text = -1;
  void read(const JsonPlace& place, TokenId pieces);
  void read_template(const JsonPlace& place, TokenId pieces);
  std::vector<TokenId> template_;  ///< the_text where the text stands; empty: that alone
};

}  // namespace coppice::tokenization
