// A regular expression, parsed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "constraints/code_points.h"

namespace coppice::constraints {

struct RegexNode {
  enum class Kind : std::uint8_t {
    characters,
    sequence,
    either,
    repeat,  ///< of its only part
    begin,   ///< ^
    end,     ///< $
    ahead,   ///< (?=...): its only part
    not_ahead,
  };
  Kind kind = Kind::sequence;
  CodePoints characters;
  std::vector<RegexNode> parts;
  std::int32_t least = 0, most = 0;

  /// Whether it or a part of it is anything but characters, sequences, alternatives and repeats.
  bool has_assertion() const;
};

/// Throws Error(usage) that begins with `where`.
RegexNode parse_regex(std::string_view pattern, const std::string& where);

/// Takes "*", "+", "?", "{m}", "{m,}" or "{m,n}" off the front of `text`. False, and nothing is
/// taken, if there is none.
bool take_repeat(std::string_view& text, std::int32_t& least, std::int32_t& most);

}  // namespace coppice::constraints
