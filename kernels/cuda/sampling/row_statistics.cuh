// The statistics of a row (sampling.h), by a block of select_threads.
#pragma once

#include <cstdint>

#include "kernels/cuda/block_reduce.cuh"
#include "kernels/cuda/sampling/radix_select.cuh"
#include "kernels/cuda/sampling/row_distribution.cuh"

namespace coppice::cuda {

struct StatisticsScratch {
  WarpValues<std::uint64_t> largest;
  WarpValues<double> sums;
  SelectScratch select;
};

/// Tokens still in play while filters are applied: the row's, or the few that were picked from
/// it; of these, those before the cut.
struct Survivors {
  Row row;
  const SelectSpace& space;
  std::int32_t listed = -1;  ///< entries of the list; -1: the row itself
  std::uint32_t cut_key = 0;
  std::int32_t cut_id = no_token;

  /// f(logit, token) for this thread's share; minus infinity has no weight and is left out.
  template <typename F>
  __device__ void for_each(F f) const {
    if (listed >= 0) {
      for (int i = static_cast<int>(threadIdx.x); i < listed; i += select_threads) {
        visit(space.list_logit[i], space.list_token[i], f);
      }
      return;
    }
    const std::int32_t groups = row.groups();
    for (int g = static_cast<int>(threadIdx.x); g < groups; g += select_threads) {
      const Quad quad = row.clean(g);
#pragma unroll
      for (int j = 0; j < 4; ++j) visit(quad.at[j], 4 * g + j, f);
    }
  }

 private:
  template <typename F>
  __device__ void visit(float x, std::int32_t token, F f) const {
    if (x > minus_infinity() && before_cut(order_key(x), token, cut_key, cut_id)) f(x, token);
  }
};

/// Moves the survivors that `wanted(logit)` picks to the list, if they fit into it.
template <typename Wanted>
__device__ void pick(SelectSpace& space, SelectScratch& scratch, Survivors& survivors,
                     Wanted wanted) {
  __syncthreads();
  if (threadIdx.x == 0) scratch.listed = 0;
  __syncthreads();
  survivors.for_each([&](float x, std::int32_t token) {
    if (!wanted(x)) return;
    const int place = atomicAdd(&scratch.listed, 1);
    if (place >= list_capacity) return;
    space.list_logit[place] = x;
    space.list_token[place] = token;
  });
  __syncthreads();
  if (scratch.listed <= list_capacity) survivors.listed = scratch.listed;
}

/// A key that at least k tokens reach, close to the k-th largest: the k-th largest of the
/// threads' largest keys. 0 where there are too few threads.
__device__ inline std::uint32_t top_k_bound(std::uint32_t largest_key, std::int32_t k) {
  if (k > select_threads) return 0;
  std::uint32_t bound = 0;
  for (std::uint32_t bit = 0x80000000u; bit != 0; bit >>= 1) {
    const int reach = __syncthreads_count(largest_key >= (bound | bit));
    if (reach >= k) bound |= bit;
    if (reach == k) break;
  }
  return bound;
}

/// Applies top-k, then top-p and min-p to what it leaves. Sets cut, least_weight and inverse_sum.
__device__ inline void filter_row(SelectSpace& space, StatisticsScratch& scratch, const Row& row,
                                  const SamplingSetting& setting, std::uint32_t largest_key,
                                  RowStatistics& statistics) {
  const float max = statistics.max, inverse_temperature = statistics.inverse_temperature;
  SelectScratch& select = scratch.select;
  Survivors survivors{row, space};
  if (setting.top_k > 0 && setting.top_k < row.width) {
    const std::uint32_t bound = top_k_bound(largest_key, setting.top_k);
    survivors.cut_key = bound;
    if (bound > 0) pick(space, select, survivors, [](float) { return true; });
    const Cut cut = find_cut(
        space, select, row.width, [&](auto f) { survivors.for_each(f); },
        [](float) { return std::uint64_t{1}; },
        [&](std::uint64_t) { return static_cast<std::uint64_t>(setting.top_k); });
    survivors.cut_key = cut.found ? cut.key : 0;
    survivors.cut_id = cut.found ? cut.id : no_token;
  }
  const auto mass = [=](float x) { return mass_of(weight_of(max, inverse_temperature, x)); };
  std::uint64_t kept = 0;
  if (setting.top_p < 1.0) {
    // The first histogram is even in the logarithm of the weight, where tokens spread; 32
    // temperatures below the largest, weights round to no mass.
    constexpr float bins_per_temperature = select_bins / 32;
    const auto bin_of = [=](float x) {
      const float below = -scaled_logit(max, inverse_temperature, x);
      return below < 32.0f
                 ? select_bins - 1 - static_cast<int>(__fmul_rn(below, bins_per_temperature))
                 : -1;
    };
    const Bin bin = find_bin(
        space, select,
        [&](auto add) {
          survivors.for_each([&](float x, std::int32_t) {
            const int at = bin_of(x);
            if (at >= 0) add(at, mass(x));
          });
        },
        [&](std::uint64_t total) {
          const double wanted = ceil(setting.top_p * static_cast<double>(total));
          const std::uint64_t needed = wanted > 1.0 ? static_cast<std::uint64_t>(wanted) : 1;
          return needed < total ? needed : total;
        });
    Survivors in_bin = survivors;
    if (in_bin.listed < 0) {
      pick(space, select, in_bin, [=](float x) { return bin_of(x) == bin.bin; });
    }
    const Cut cut = find_cut(
        space, select, row.width,
        [&](auto f) {
          in_bin.for_each([&](float x, std::int32_t token) {
            if (bin_of(x) == bin.bin && mass(x) > 0) f(x, token);
          });
        },
        mass, [&](std::uint64_t) { return bin.needed - bin.above; });
    // Top-k may have kept only some of those at this edge.
    const bool same_edge = cut.key == survivors.cut_key;
    survivors.cut_id = same_edge && survivors.cut_id < cut.id ? survivors.cut_id : cut.id;
    survivors.cut_key = cut.key;
    kept = bin.above + cut.kept;
  }
  statistics.cut_key = survivors.cut_key;
  statistics.cut_id = survivors.cut_id;
  statistics.least_weight = setting.least_weight;
  if (setting.top_p >= 1.0 || setting.least_weight > 0.0f) {
    // What is left is summed anew: integers, since the list is in no particular order.
    std::uint64_t sum = 0;
    survivors.for_each([&](float x, std::int32_t) {
      const float weight = weight_of(max, inverse_temperature, x);
      if (weight >= setting.least_weight) sum += mass_of(weight);
    });
    kept = block_reduce(sum, SumOf(), std::uint64_t{0}, select.sums);
  }
  statistics.inverse_sum =
      __double2float_rn(__ddiv_rn(static_cast<double>(mass_unit), __ull2double_rn(kept)));
}

/// `first(group, finite)` yields a group's cleaned logits as this thread will find them in `row`
/// from then on (it may write them there) and sets `finite` where one of them was finite before
/// it was cleaned. kFaulty: with what the setting's planted fault needs.
template <bool kFaulty, typename First>
__device__ RowStatistics row_statistics(SelectSpace& space, StatisticsScratch& scratch,
                                        const Row& row, const SamplingSetting& setting,
                                        First first) {
  float largest = minus_infinity();
  std::int32_t at = no_token;
  bool finite = false;
  const std::int32_t groups = row.groups();
#pragma unroll 2
  for (int g = static_cast<int>(threadIdx.x); g < groups; g += select_threads) {
    const Quad quad = first(g, finite);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (quad.at[j] > largest) {
        largest = quad.at[j];
        at = 4 * g + j;
      }
    }
  }
  const std::uint32_t largest_key = order_key(largest);
  const auto placed = [](std::uint32_t key, std::int32_t token) {
    return (std::uint64_t{key} << 32) | (0xffffffffu - static_cast<std::uint32_t>(token));
  };
  const auto token_of = [](std::uint64_t place) {
    return static_cast<std::int32_t>(0xffffffffu - static_cast<std::uint32_t>(place));
  };
  const std::uint64_t best =
      block_reduce(placed(largest_key, at), LargerOf(), std::uint64_t{0}, scratch.largest);
  RowStatistics statistics;
  if (__syncthreads_or(finite ? 1 : 0) == 0) {
    statistics.cut_key = 0xffffffffu;  // no logit has this key: all probabilities are 0
    return statistics;
  }
  statistics.max = logit_of(static_cast<std::uint32_t>(best >> 32));
  statistics.argmax = token_of(best);
  statistics.inverse_temperature = setting.inverse_temperature;
  statistics.cut_id = no_token;
  if (setting.inverse_temperature <= 0.0f) {
    statistics.inverse_sum = 1.0f;
    statistics.cut_key = static_cast<std::uint32_t>(best >> 32);
    statistics.cut_id = statistics.argmax;
    return statistics;
  }
  const float max = statistics.max, inverse_temperature = statistics.inverse_temperature;
  if (setting.top_k > 0 || setting.top_p < 1.0) {
    filter_row(space, scratch, row, setting, largest_key, statistics);
  } else {
    statistics.least_weight = setting.least_weight;
    // Four floats at a time, those in double.
    double sum = 0.0;
#pragma unroll 4
    for (int g = static_cast<int>(threadIdx.x); g < groups; g += select_threads) {
      Quad quad = row.clean(g);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float weight = weight_of(max, inverse_temperature, quad.at[j]);
        quad.at[j] = weight < setting.least_weight ? 0.0f : weight;
      }
      const float four =
          __fadd_rn(__fadd_rn(quad.at[0], quad.at[1]), __fadd_rn(quad.at[2], quad.at[3]));
      sum = __dadd_rn(sum, static_cast<double>(four));
    }
    sum = block_reduce(sum, SumOf(), 0.0, scratch.sums);
    statistics.inverse_sum = __double2float_rn(__ddiv_rn(1.0, sum));
  }
  if (kFaulty && setting.fault == DeviceFault::declared_is_not_sampled) {
    float second = minus_infinity();
    std::int32_t second_at = no_token;
    for (int g = static_cast<int>(threadIdx.x); g < groups; g += select_threads) {
      const Quad quad = row.clean(g);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (4 * g + j != statistics.argmax && quad.at[j] > second) {
          second = quad.at[j];
          second_at = 4 * g + j;
        }
      }
    }
    statistics.second = token_of(block_reduce(placed(order_key(second), second_at), LargerOf(),
                                              std::uint64_t{0}, scratch.largest));
  }
  return statistics;
}

}  // namespace coppice::cuda
