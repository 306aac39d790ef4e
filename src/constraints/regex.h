// Regular expressions as ECMA-262 writes them, without what is not regular.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "constraints/expressions.h"

namespace coppice::constraints {

enum class RegexUse : std::uint8_t {
  whole_text,   ///< the whole text matches; characters are UTF-8
  json_search,  ///< a part of a JSON string's characters matches; they are spelt as in JSON
};

/// Throws Error(usage) that begins with `where`.
Expr compile_regex(Expressions& expressions, std::string_view pattern, RegexUse use,
                   const std::string& where);

}  // namespace coppice::constraints
