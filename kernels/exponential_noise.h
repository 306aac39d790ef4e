// The one definition of exponential noise from random bits, for every CPU and GPU.
#pragma once

#include <cstdint>

namespace coppice::exponential_noise {

/// 1 / E with E = -log(u), for u = (2 m + 1) / 2^53 and m the upper 52 of 64 random bits, in
/// single precision. Relative error below 5e-7 for every u.
///
/// u = 2^e (1 + r) with -1/3 <= r <= 1/3, and -log u = -(e log 2 + log(1 + r)). Near 1, above 2/3,
/// e = 0 and r is -(1 - u), of which no digit is lost; elsewhere log u is well away from 0 and u's
/// rounding to float does no harm: by 2^-24 relatively, which in log u is at most
/// 2^-24 / log(3/2). The polynomial's error (1.7e-8) and a few roundings come on top.
///
/// As operations of float, each rounded once, in this order (fma: a product and a sum rounded
/// together):
///   v = float(u > 2/3 ? 1 - u : u)
///   e = u > 2/3 ? 0 : (bits of v - bits of 2/3) / 2^23, rounded down
///   r = u > 2/3 ? -v : v / 2^e - 1
///   p = c7; p = fma(p, r, c) for c of rest
///   log_u = fma(e, log_2, r + (r * r) * p)
///   1 / -log_u
/// A text is then the same, but for its models, whatever made its noise.
inline constexpr double two_thirds = 0x1.5555555555555p-1;
inline constexpr std::int32_t two_thirds_bits = 0x3f2aaaab;  ///< as a float
inline constexpr std::int32_t exponent_mask = -(std::int32_t{1} << 23);
inline constexpr float log_2 = 0x1.62e430p-1f;
/// p: -1/2 + r (log(1 + r) - r + r^2 / 2) / r^3, interpolated at Chebyshev nodes.
inline constexpr float c7 = -0x1.f0b940p-4f;
inline constexpr float rest[] = {0x1.12fdeap-3f, -0x1.f9b112p-4f, 0x1.212374p-3f, -0x1.556796p-3f,
                                 0x1.99ad76p-3f, -0x1.fffff0p-3f, 0x1.55554cp-2f, -0.5f};

}  // namespace coppice::exponential_noise
