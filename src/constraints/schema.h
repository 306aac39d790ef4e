// JSON schemas as languages of JSON texts.
#pragma once

#include <string_view>

#include "constraints/language.h"

namespace coppice::constraints {

/// Throws Error(usage) that names the keyword by its path ("JSON schema: #/properties/a/not: ...").
Expr compile_schema(Expressions& expressions, std::string_view schema, JsonSpace space);

}  // namespace coppice::constraints
