// Where a filter cuts a row: the k-th largest logit, or the last one of the fewest largest whose
// weights reach a mass. Without sorting: by histograms over ever finer ranges of the logits, in
// shared memory, summing integers, so that the order in which threads arrive does not show.
#pragma once

#include <cstdint>

#include "kernels/cuda/block_reduce.cuh"
#include "kernels/cuda/sampling/row_distribution.cuh"

namespace coppice::cuda {

inline constexpr int select_threads = 1024;
inline constexpr int select_bins = 2 * select_threads;
inline constexpr int list_capacity = 2048;

/// Shared memory of a selection.
struct SelectSpace {
  // Masses by bin, in two words: shared memory adds 32 bits at a time.
  std::uint32_t low[select_bins];
  std::uint32_t high[select_bins];
  // Tokens picked from a row.
  float list_logit[list_capacity];
  std::int32_t list_token[list_capacity];
};

struct SelectScratch {
  WarpValues<std::uint64_t> sums;
  std::uint64_t above;  ///< mass of the bins above the one found
  std::uint64_t at;     ///< mass of that bin
  std::uint64_t needed;
  std::int32_t bin;
  std::int32_t listed;
};

/// A weight of at most 1 as an integer; up to 2^19 of them fit into 64 bits.
inline constexpr float mass_unit = 0x1.0p44f;
__device__ inline std::uint64_t mass_of(float weight) {
  return __float2ull_rn(__fmul_rn(weight, mass_unit));
}

struct Bin {
  std::int32_t bin = -1;  ///< -1: all of them together do not reach what is needed
  std::uint64_t above = 0;
  std::uint64_t at = 0;
  std::uint64_t needed = 0;
};

/// The bin in which the running sum of masses, from the last bin down to the first, reaches
/// needed(mass of all bins), which is at least 1. for_each(add) calls add(bin, mass) for this
/// thread's share of the elements.
template <typename ForEach, typename Needed>
__device__ Bin find_bin(SelectSpace& space, SelectScratch& scratch, ForEach for_each,
                        Needed needed) {
  __syncthreads();  // whoever read the space before has done so
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < select_bins; i += select_threads) {
    space.low[i] = 0;
    space.high[i] = 0;
  }
  if (thread == 0) scratch.bin = -1;
  __syncthreads();
  for_each([&](int bin, std::uint64_t mass) {
    const auto low = static_cast<std::uint32_t>(mass);
    const std::uint32_t before = atomicAdd(&space.low[bin], low);
    const std::uint32_t high =
        static_cast<std::uint32_t>(mass >> 32) + (before + low < before ? 1u : 0u);
    if (high != 0) atomicAdd(&space.high[bin], high);
  });
  __syncthreads();
  const int upper = select_bins - 1 - 2 * thread;
  const auto mass_at = [&](int bin) {
    return (std::uint64_t{space.high[bin]} << 32) + space.low[bin];
  };
  const std::uint64_t first = mass_at(upper), second = mass_at(upper - 1);
  const RunningSum<std::uint64_t> sum = block_running_sum(first + second, scratch.sums);
  const std::uint64_t wanted = needed(sum.total);
  // At most one thread finds its bins in the way.
  if (sum.before < wanted && wanted <= sum.before + first + second) {
    const bool in_first = wanted <= sum.before + first;
    scratch.bin = in_first ? upper : upper - 1;
    scratch.above = in_first ? sum.before : sum.before + first;
    scratch.at = in_first ? first : second;
    scratch.needed = wanted;
  }
  __syncthreads();
  if (scratch.bin < 0) return {};
  return {scratch.bin, scratch.above, scratch.at, scratch.needed};
}

/// Narrows 32-bit keys down to one, from the largest, until masses reach needed(all of them).
/// elements(f) calls f(key, mass) for this thread's share.
struct KeyCut {
  bool found = false;  ///< false: all of them together do not reach what is needed
  std::uint32_t key = 0;
  std::uint64_t above = 0;  ///< mass of larger keys
  std::uint64_t at = 0;     ///< mass of this key
  std::uint64_t needed = 0;
};

template <typename Elements, typename Needed>
__device__ KeyCut find_key(SelectSpace& space, SelectScratch& scratch, Elements elements,
                           Needed needed) {
  KeyCut cut;
  int settled = 32;  // bits from this one up are
#pragma unroll 1
  for (int shift = 21; shift >= 0; shift = shift == 21 ? 10 : shift - 10) {
    const std::uint32_t mask = (1u << (settled - shift)) - 1;
    const std::uint32_t prefix = cut.key;
    const Bin bin = find_bin(
        space, scratch,
        [&](auto add) {
          elements([&](std::uint32_t key, std::uint64_t mass) {
            if ((std::uint64_t{key} >> settled) == prefix) {
              add(static_cast<int>((key >> shift) & mask), mass);
            }
          });
        },
        [&](std::uint64_t total) {
          return settled == 32 ? needed(total) : cut.needed - cut.above;
        });
    if (bin.bin < 0) return {};
    if (settled == 32) cut.needed = bin.needed;
    cut.above += bin.above;
    cut.at = bin.at;
    cut.key = (prefix << (settled - shift)) | static_cast<std::uint32_t>(bin.bin);
    settled = shift;
  }
  cut.found = true;
  return cut;
}

struct Cut {
  bool found = false;  ///< false: everything stays
  std::uint32_t key = 0;
  std::int32_t id = no_token;
  std::uint64_t kept = 0;  ///< mass up to the cut
};

/// The cut by falling logit and rising id. elements(f) calls f(logit, token) for this thread's
/// share of tokens in [0, width); mass(logit) is at least 1.
template <typename Elements, typename Mass, typename Needed>
__device__ Cut find_cut(SelectSpace& space, SelectScratch& scratch, std::int32_t width,
                        Elements elements, Mass mass, Needed needed) {
  const KeyCut by_key = find_key(
      space, scratch,
      [&](auto f) { elements([&](float x, std::int32_t) { f(order_key(x), mass(x)); }); }, needed);
  if (!by_key.found) return {};
  // How many of those at the edge there are, and how many of them stay.
  const std::uint64_t each = mass(logit_of(by_key.key));
  const std::uint64_t ties = by_key.at / each;
  const std::uint64_t stay = (by_key.needed - by_key.above + each - 1) / each;
  Cut cut{true, by_key.key, no_token, by_key.above + stay * each};
  if (stay < ties) {
    // The lowest ids, as the largest keys; shifted to the top, which spreads them over bins.
    const int shift = __clz(width);
    const KeyCut by_id = find_key(
        space, scratch,
        [&](auto f) {
          elements([&](float x, std::int32_t token) {
            if (order_key(x) == by_key.key) {
              f(static_cast<std::uint32_t>(width - 1 - token) << shift, 1);
            }
          });
        },
        [&](std::uint64_t) { return stay; });
    cut.id = width - 1 - static_cast<std::int32_t>(by_id.key >> shift);
  }
  return cut;
}

}  // namespace coppice::cuda
