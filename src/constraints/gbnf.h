// Grammars in llama.cpp's GBNF syntax.
#pragma once

#include <string_view>

#include "constraints/expressions.h"

namespace coppice::constraints {

/// Throws Error(usage) that names the line. Rules that begin with themselves are refused.
Expr compile_gbnf(Expressions& expressions, std::string_view grammar);

}  // namespace coppice::constraints
