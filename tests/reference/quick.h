// Whether this is a quick build (COPPICE_QUICK_BUILD), as continuous integration makes one: there,
// too, what repeats itself is repeated less often. tests/README.md says what.
#pragma once

namespace coppice::testing {

#ifdef COPPICE_QUICK_BUILD
inline constexpr bool quick = true;
#else
inline constexpr bool quick = false;
#endif

}  // namespace coppice::testing
