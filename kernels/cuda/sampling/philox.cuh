// Random numbers of base/random.h on the GPU, bit for bit, and exponential noise made of them.
#pragma once

#include <Random123/philox.h>

#include <cstdint>

#include "base/random.h"
#include "kernels/exponential_noise.h"

namespace coppice::cuda {

/// Four random numbers of one address. (The generator's own types are arrays with checks.)
struct RandomBlock {
  std::uint64_t at[4];
};

__device__ inline RandomBlock random_block(RandomStream stream, std::uint64_t seed, std::uint64_t a,
                                           std::uint64_t b, std::uint64_t c, std::uint64_t d) {
  const r123::Philox4x64::ctr_type counter = {{a, b, c, d}};
  const r123::Philox4x64::key_type key = {{seed, static_cast<std::uint64_t>(stream)}};
  const r123::Philox4x64::ctr_type bits = r123::Philox4x64()(counter, key);
  return {{bits.v[0], bits.v[1], bits.v[2], bits.v[3]}};
}

/// base/random.h uniform().
__device__ inline double uniform_at(RandomStream stream, const StepKey& key, std::uint64_t node_key,
                                    std::uint64_t index) {
  const std::uint64_t bits =
      random_block(stream, key.seed, key.sequence, key.step, node_key, index).at[0];
  return __dmul_rn(__dadd_rn(__ull2double_rn(bits >> 12), 0.5), 0x1.0p-52);
}

/// Where the noise of a row's tokens lies in its stream: tokens 4 g to 4 g + 3 share the block
/// at `group_word` g.
struct NoiseAddress {
  RandomStream stream;
  std::uint64_t seed, a, b, c;
  bool by_position;
};

__device__ inline NoiseAddress coupled_noise(const StepKey& key, std::int32_t depth) {
  return {RandomStream::coupled,
          key.seed,
          key.sequence,
          key.noise_position(static_cast<std::uint64_t>(depth)),
          0,
          true};
}

__device__ inline NoiseAddress sampled_noise(const StepKey& key, std::uint64_t node_key) {
  return {RandomStream::draft, key.seed, key.sequence, key.step, node_key, false};
}

__device__ inline RandomBlock noise_bits(const NoiseAddress& address, std::uint64_t group) {
  return random_block(address.stream, address.seed, address.a, address.b,
                      address.by_position ? group : address.c, address.by_position ? 0 : group);
}

/// 1 / E of kernels/exponential_noise.h, bit for bit. Every operation is rounded explicitly: all
/// kernels compute the same bits.
__device__ inline float inverse_exponential(std::uint64_t bits) {
  namespace define = exponential_noise;
  constexpr auto two_thirds = static_cast<std::uint64_t>(define::two_thirds * 0x1p53);
  constexpr float c[] = {define::rest[0], define::rest[1], define::rest[2], define::rest[3],
                         define::rest[4], define::rest[5], define::rest[6], define::rest[7]};
  const std::uint64_t odd = (bits >> 12) * 2 + 1;
  const bool near_one = odd > two_thirds;
  const float v =
      __fmul_rn(__ull2float_rn(near_one ? (std::uint64_t{1} << 53) - odd : odd), 0x1.0p-53f);
  // Less the bits of 2/3, so that cutting the fraction off leaves v / 2^e in [2/3, 4/3).
  const std::int32_t exponent_bits =
      (__float_as_int(v) - define::two_thirds_bits) & define::exponent_mask;
  const float r =
      near_one ? -v : __fsub_rn(__int_as_float(__float_as_int(v) - exponent_bits), 1.0f);
  const float exponent = near_one ? 0.0f : __int2float_rn(exponent_bits >> 23);
  float p = define::c7;
#pragma unroll
  for (int i = 0; i < 8; ++i) p = __fmaf_rn(p, r, c[i]);
  const float tail = __fmul_rn(__fmul_rn(r, r), p);
  const float log_u = __fmaf_rn(exponent, define::log_2, __fadd_rn(r, tail));
  return __frcp_rn(-log_u);
}

}  // namespace coppice::cuda
