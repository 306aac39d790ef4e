// Which words are keywords of JSON schemas.
#pragma once

#include <string>
#include <string_view>

namespace coppice::constraints {

/// Whether the keyword asserts something of a value, in any draft from 3 on, supported or not.
bool is_assertion(std::string_view keyword);

/// The keyword that a schema's `key` is probably a misspelling of. "" if the key is a keyword, or
/// far enough from all of them to be an annotation: JSON Schema allows those under any name.
std::string misspelt_keyword(std::string_view key);

}  // namespace coppice::constraints
