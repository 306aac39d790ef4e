// Sets of Unicode characters, and how they are spelt in bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "constraints/expressions.h"

namespace coppice::constraints {

class CodePoints {
 public:
  static constexpr std::uint32_t last = 0x10ffff;

  CodePoints() = default;
  CodePoints(std::uint32_t low, std::uint32_t high) { add(low, high); }
  static CodePoints all() { return {0, last}; }

  void add(std::uint32_t low, std::uint32_t high) { ranges_.emplace_back(low, high); }
  void add(const CodePoints& others) {
    ranges_.insert(ranges_.end(), others.ranges_.begin(), others.ranges_.end());
  }
  CodePoints others() const;  ///< all characters but these
  CodePoints without(const CodePoints& some) const;
  bool has(std::uint32_t code_point) const;
  /// Sorted, apart from each other, without surrogates, which are no characters.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> ranges() const;

 private:
  std::vector<std::pair<std::uint32_t, std::uint32_t>> ranges_;
};

/// Takes a character off the text's front; a byte that begins none is taken as it is, with
/// `is_valid` false.
std::uint32_t take_utf8(std::string_view& text, bool& is_valid);

/// One of these characters, in UTF-8.
Expr utf8(Expressions& expressions, const CodePoints& characters);

/// One of these characters inside a JSON string. Each is spelt in one way, as Python's json.dumps()
/// does with ensure_ascii=False, so that equal strings have equal bytes.
Expr json_character(Expressions& expressions, const CodePoints& characters);
std::string json_spelt(std::string_view utf8_text);

}  // namespace coppice::constraints
