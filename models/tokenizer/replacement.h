// A pattern (a text or a regular expression) and what stands in its place afterwards.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "models/tokenizer/allowance.h"
#include "models/tokenizer/json_place.h"
#include "models/tokenizer/regex.h"

namespace coppice::tokenization {

/// {"String": text} or {"Regex": expression}.
struct Pattern {
  explicit Pattern(const JsonPlace& place);
  std::string text;  ///< if there is no regex
  std::optional<Regex> regex;
};

/// Applies a Replace, normalizer or decoder: its "pattern" and "content".
class Replacement {
 public:
  explicit Replacement(const JsonPlace& place);
  /// `takes_start`, unless null: whether what `text` begins with is gone. One character is not if
  /// another text stands in its place.
  std::string apply(std::string_view text, Allowance& allowance, bool* takes_start = nullptr) const;
  bool keeps_bytes() const { return !pattern_.regex && content_.size() >= pattern_.text.size(); }
  /// Whether applying it to the pieces of a text is the same as applying it to the text.
  bool acts_on_single_bytes() const { return !pattern_.regex && pattern_.text.size() == 1; }

 private:
  Pattern pattern_;
  std::string content_;
};

}  // namespace coppice::tokenization
