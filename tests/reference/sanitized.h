// Whether this is a build under sanitizers. They slow a test down by an order of magnitude and look
// for other things than numbers, so that what repeats itself is repeated less often there.
#pragma once

namespace coppice::testing {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif

}  // namespace coppice::testing
