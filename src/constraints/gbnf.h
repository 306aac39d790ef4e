// Grammars in llama.cpp's GBNF syntax.
#pragma once

#include <string_view>

#include "constraints/expressions.h"

namespace coppice::constraints {

/// Beyond GBNF: `%json {...}` is JSON of a schema, `%not(...)` all text but what the parentheses
/// match (they hold no rules), and `%token("<tag>")` an added token that so spells, or its
/// characters.
///
/// Throws Error(usage) that names the line. Rules that begin with themselves are refused.
Expr compile_gbnf(Expressions& expressions, std::string_view grammar);

}  // namespace coppice::constraints
