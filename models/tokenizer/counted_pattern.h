// Patterns whose searches say how far they look.
#pragma once

#include <string>
#include <string_view>

namespace coppice::tokenization {

/// Rewrites a pattern, which Oniguruma accepts, to one with the same matches that reports how far
/// a search has come, by Oniguruma's callouts of contents. Oniguruma counts a search's steps back
/// itself, but not what a search looks at without one: in a lookahead, in a possessive loop or in a
/// loop that it makes possessive. `where` begins messages. Throws Error(failure) for what cannot be
/// counted: references, calls, callouts, conditions, absent groups, text segments, raw bytes, loops
/// in a lookbehind.
std::string counted_pattern(std::string_view pattern, const std::string& where);

}  // namespace coppice::tokenization
