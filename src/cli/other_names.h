// What other programs, llama.cpp before all, call our options.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace coppice::cli {

/// Other spellings that are taken for an option because they mean the same: of "target", "-m" and
/// "--model". `option` has no dashes; all other names have theirs.
std::vector<std::string> aliases_of(std::string_view option);

/// The option that `typed` is an alias of, "" if it is none.
std::string_view aliased(std::string_view typed);

/// Whether it names a prompt in which llama.cpp takes backslashes for escapes.
bool escapes(std::string_view typed);

/// A name of others that is no alias.
struct Translation {
  std::string_view option;  ///< ours that comes nearest; "" if there is none
  std::string_view remark;  ///< how they differ; without an option: why there is none
};
/// Translates another program's name. For a name that nobody is known to use: an option and a
/// remark of "".
Translation translated(std::string_view typed);

}  // namespace coppice::cli
