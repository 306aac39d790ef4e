// The kernel of packed_linear.h.
//
// A block's tiles are worked at in rounds. Inputs are cut into `slices` equal runs of parts, each
// of which some warps add up for themselves; the runs' sums are then added in their order. A stage
// in shared memory has some parts of every slice: first of x, then of the weights.
#pragma once

#include "kernels/cuda/attention/hopper_ptx.cuh"
#include "kernels/cuda/linear/packed_layout.h"
#include "kernels/cuda/linear/streamed_stages.cuh"

namespace coppice::cuda::packed {

using Share = streamed::Share<1>;
using flatten::multiply_add;
using streamed::End;
using streamed::Ending;
using streamed::Four;
using streamed::most_stages;
using streamed::Output;
using streamed::pair_outputs;
using streamed::Place;
using streamed::SharedState;
using streamed::tile_outputs;

inline constexpr int most_round_tiles = 16;
/// Sums of more rows than these leave the registers, if warps multiply for themselves: the four of
/// a warpgroup do it together then.
inline constexpr int most_own_rows = 64;
__host__ __device__ constexpr bool together(int row_blocks) {
  return 8 * row_blocks > most_own_rows;
}
inline constexpr int group_warps = hopper::warpgroup_threads / 32;
/// With few rows more warps, each with one tile, are faster: to unpack takes most of their time.
/// With many, fewer warps with two tiles each read x less often, as warpgroups do.
__host__ __device__ constexpr int warps_of(int row_blocks) {
  return row_blocks <= 2 || together(row_blocks) ? 16 : 8;
}
/// One warp more copies; where warpgroups multiply, they have the registers of its warpgroup.
__host__ __device__ constexpr int threads_of(int row_blocks) {
  return 32 * (warps_of(row_blocks) + (together(row_blocks) ? group_warps : 1));
}
inline constexpr int x_row_bytes = 128;  ///< of a part

struct Arguments {
  CUtensorMap x;  ///< [64 inputs][row][in / 64]
  /// Words of a side's parts, then sides: of gated ones by [side][tile], of rotated ones by
  /// [head][side][tile of a half].
  CUtensorMap weights;
  Output output;
  Ending ending;
  std::int32_t tiles;        ///< of a block
  std::int32_t larger;       ///< blocks that have one more
  std::int32_t round_tiles;  ///< most of a round
  std::int32_t rounds;
  std::int32_t slices;       ///< of the inputs: 1, 2, 4 or 8
  std::int32_t all_parts;    ///< of the inputs
  std::int32_t slice_parts;  ///< of a slice; the last may have fewer
  std::int32_t stage_parts;  ///< of a slice, in a stage
  // In a stage: from a slice's weights to the next's, from a tile's to the next's, and from a
  // tile's side to the other. What is copied at once begins at a multiple of 128.
  std::int32_t slice_bytes, tile_bytes, side_bytes;
  std::int32_t stage_bytes;
  std::int32_t stage_count;  ///< of a round
  std::int32_t stages;       ///< in shared memory; a round's sums lie where they were
};

/// Parts of slice `slice` in stage `number` of a round.
__device__ inline std::int32_t parts_of(const Arguments& a, std::int32_t slice,
                                        std::int32_t number) {
  const std::int32_t begin = slice * a.slice_parts + number * a.stage_parts;
  const std::int32_t end = min((slice + 1) * a.slice_parts, a.all_parts);
  return max(min(end - begin, a.stage_parts), 0);
}

template <int bits, int group, bool minima, int row_blocks>
class Kernel {
  static constexpr PackedLayout layout{bits, group, minima};
  static constexpr int part_bytes = layout.part_bytes();
  static constexpr int x_part_bytes = row_blocks * 8 * x_row_bytes;
  static constexpr int warps = warps_of(row_blocks), consumers = 32 * warps;
  static constexpr int warp_tiles = most_round_tiles / warps;  ///< most of a warp in a round
  static constexpr int groups = static_cast<int>(packed_part) / group;  ///< of a part
  static constexpr bool e4m3 = layout.e4m3();
  /// Sums that are scaled later take registers, too.
  static constexpr bool one_by_one = e4m3 && row_blocks >= 8 && warp_tiles == 2;

 public:
  __device__ static void copy(const Arguments& a, std::uint32_t memory, SharedState& state) {
    const Share share(a);
    const std::uint64_t policy = hopper::read_once();
    const auto lane = static_cast<std::int32_t>(threadIdx.x) % 32;
    const std::int32_t ahead = min(a.stages, a.stage_count);
    Place weights_at, x_at;
    for (std::int32_t i = 0; i < ahead; ++i) {
      copy_weights(a, share, 0, i, lane, memory, weights_at, policy, state);
      weights_at.advance(a.stages);
    }
    wait_for_former_kernels();
#pragma unroll 1
    for (std::int32_t round = 0; round < a.rounds; ++round) {
#pragma unroll 1
      for (std::int32_t i = 0; i < a.stage_count; ++i) {
        if (round > 0 || i >= ahead) {
          copy_weights(a, share, round, i, lane, memory, x_at, policy, state);
        }
        copy_x(a, i, lane, memory, x_at, state);
        x_at.advance(a.stages);
      }
      __syncwarp();
      if (round + 1 < a.rounds) end_round();
    }
  }

  __device__ static void multiply(const Arguments& a, std::uint8_t* memory, SharedState& state) {
    const Share share(a);
    const auto thread = static_cast<int>(threadIdx.x);
    const int lane = thread % 32;
    // Compilers have to see that a warp's threads agree.
    const int warp = __shfl_sync(flatten::all_lanes, thread / 32, 0);
    const int tiles_at_once = warps / a.slices;
    const int slice = warp / tiles_at_once, own = warp % tiles_at_once;
    const std::uint32_t base = hopper::shared_address(memory);
    auto* const sums_memory = reinterpret_cast<float*>(memory);
    const int stride = streamed::sums_stride(share.round_tiles * tile_outputs);
    Place at;
#pragma unroll 1
    for (std::int32_t round = 0; round < a.rounds; ++round) {
      const std::int32_t tiles = share.tiles_of(round);
      float sums[warp_tiles][row_blocks][4];
#pragma unroll
      for (int tile = 0; tile < warp_tiles; ++tile) {
#pragma unroll
        for (int block = 0; block < row_blocks; ++block) {
#pragma unroll
          for (int k = 0; k < 4; ++k) sums[tile][block][k] = 0.0f;
        }
      }
      if constexpr (together(row_blocks)) hopper::pin(flat(sums[0]));
      [[maybe_unused]] const bool second = own + tiles_at_once < tiles;
#pragma unroll 1
      for (std::int32_t i = 0; i < a.stage_count; ++i) {
        hopper::wait(&state.filled[at.stage], at.parity);
        if constexpr (together(row_blocks)) {
          const int stage = at.stage * a.stage_bytes;
          const std::uint8_t* tile = memory + stage + a.slices * a.stage_parts * x_part_bytes +
                                     slice * a.slice_bytes + own * a.tile_bytes;
          multiply_stage(a, base + static_cast<std::uint32_t>(stage), tile, warp, tiles, i, lane,
                         flat(sums[0]));
        } else if (own < tiles) {
          const std::int32_t count = parts_of(a, slice, i);
          const int stage = at.stage * a.stage_bytes;
          const std::uint32_t x =
              base + static_cast<std::uint32_t>(stage + slice * a.stage_parts * x_part_bytes);
          const std::uint8_t* weights =
              memory + stage + a.slices * a.stage_parts * x_part_bytes + slice * a.slice_bytes;
          const std::uint8_t* first_tile = weights + own * a.tile_bytes;
          const std::uint8_t* second_tile = weights + (own + tiles_at_once) * a.tile_bytes;
#pragma unroll 1
          for (std::int32_t part = 0; part < count; ++part) {
            const std::uint32_t x_part = x + static_cast<std::uint32_t>(part * x_part_bytes);
            const std::uint8_t* one = first_tile + part * part_bytes;
            const std::uint8_t* other = second_tile + part * part_bytes;
            if (warp_tiles == 2 && second && !one_by_one) {
              multiply_part<warp_tiles>(x_part, one, other, a.side_bytes, lane, sums);
            } else {
              multiply_part<1>(x_part, one, other, a.side_bytes, lane, sums);
              if (one_by_one && second) {
                multiply_part<1, warp_tiles - 1>(x_part, other, other, a.side_bytes, lane, sums);
              }
            }
          }
        }
        __syncwarp();
        if (lane == 0) hopper::arrive(&state.emptied[at.stage]);
        at.advance(a.stages);
      }
      if constexpr (together(row_blocks)) hopper::pin(flat(sums[0]));
      meet();  // stages are read
      const int slice_floats = 8 * row_blocks * stride;
#pragma unroll
      for (int tile = 0; tile < warp_tiles; ++tile) {
        const int number = own + tile * tiles_at_once;
        if (number >= tiles) continue;
        float* to = sums_memory + slice * slice_floats + lane % 4 * 2 * stride +
                    number * tile_outputs + lane / 4;
#pragma unroll
        for (int block = 0; block < row_blocks; ++block) {
          streamed::store_sums(to + 8 * block * stride, stride, sums[tile][block]);
        }
      }
      meet();
      const auto sum_at = [&](std::int32_t row, std::int32_t output) {
        const float* from = sums_memory + row * stride + output;
        Four sum = load<vector_width>(from);
#pragma unroll 1
        for (int s = 1; s < a.slices; ++s) {
          streamed::add(sum, load<vector_width>(from + s * slice_floats));
        }
        return sum;
      };
      const std::int32_t begin = share.begin_of(round);
      switch (a.ending) {
        case Ending::plain:
          streamed::end_rows<Ending::plain, consumers, 1>(a.output, 0, a.output.rows, begin, tiles,
                                                          sum_at);
          break;
        case Ending::gated:
          streamed::end_rows<Ending::gated, consumers, 1>(a.output, 0, a.output.rows, begin, tiles,
                                                          sum_at);
          break;
        case Ending::rotated:
          streamed::end_rows<Ending::rotated, consumers, 1>(a.output, 0, a.output.rows, begin,
                                                            tiles, sum_at);
          break;
      }
      if (round + 1 < a.rounds) {
        hopper::make_visible_to_products();
        end_round();
      }
    }
  }

 private:
  using Flat = float[4 * row_blocks];
  __device__ static Flat& flat(float (&sums)[row_blocks][4]) {
    return reinterpret_cast<Flat&>(sums);
  }
  __device__ static void meet() { hopper::block_barrier_wait(1, consumers); }
  /// A round's sums have been read, and stages may be filled again.
  __device__ static void end_round() { hopper::block_barrier_wait(2, consumers + 32); }

  /// Boxes are whole: what is behind a slice, or another block's, lands and is not used.
  __device__ static void copy_weights(const Arguments& a, const Share& share, std::int32_t round,
                                      std::int32_t number, std::int32_t lane, std::uint32_t memory,
                                      const Place& at, std::uint64_t policy, SharedState& state) {
    std::uint64_t* filled = &state.filled[at.stage];
    hopper::wait(&state.emptied[at.stage], at.parity ^ 1);
    if (lane == 0) {
      int slices = 0;
      for (std::int32_t slice = 0; slice < a.slices; ++slice) {
        slices += parts_of(a, slice, number) > 0 ? 1 : 0;
      }
      hopper::arrive_expecting(
          filled, slices * a.stage_parts * (2 * share.round_tiles * part_bytes + x_part_bytes));
    }
    __syncwarp();
    // A slice for each lane; of rotated ones a tile and slice.
    const std::int32_t boxes = a.ending == Ending::rotated ? share.round_tiles : 1;
    const std::int32_t slice = lane / boxes, box = lane % boxes;
    if (slice >= a.slices || parts_of(a, slice, number) == 0) return;
    const std::uint32_t to =
        memory + static_cast<std::uint32_t>(at.stage * a.stage_bytes +
                                            a.slices * a.stage_parts * x_part_bytes +
                                            slice * a.slice_bytes + box * a.tile_bytes);
    const std::int32_t word = (slice * a.slice_parts + number * a.stage_parts) * (part_bytes / 8);
    const std::int32_t tile = share.begin_of(round) + box;
    if (a.ending == Ending::rotated) {
      const std::int32_t half = a.output.rope.half_dim / pair_outputs, head = tile / half;
      hopper::copy_box_once(to, a.weights, filled, policy, word, tile - head * half, 0, head);
    } else if (a.ending == Ending::gated) {
      hopper::copy_box_once(to, a.weights, filled, policy, word, tile, 0);
    } else {
      hopper::copy_box_once(to, a.weights, filled, policy, word, 2 * tile, 0);
    }
  }
  __device__ static void copy_x(const Arguments& a, std::int32_t number, std::int32_t lane,
                                std::uint32_t memory, const Place& at, SharedState& state) {
    if (lane >= a.slices || parts_of(a, lane, number) == 0) return;
    hopper::copy_box(memory + static_cast<std::uint32_t>(at.stage * a.stage_bytes +
                                                         lane * a.stage_parts * x_part_bytes),
                     a.x, 0, 0, lane * a.slice_parts + number * a.stage_parts,
                     &state.filled[at.stage]);
  }

  // --- numbers ---

  /// Pairs of E4M3, as bf16: the lower bytes of both halves of the word, or the upper ones. Bits go
  /// where bf16 has its own; the exponent's bias is 120 more there. Exact.
  template <bool upper>
  __device__ static std::uint32_t e4m3_pair(std::uint32_t word) {
    const std::uint32_t sign = upper ? word : word << 8;
    const std::uint32_t magnitude = upper ? word >> 4 : word << 4;
    const std::uint32_t pair = (sign & 0x80008000) | (magnitude & 0x07f007f0);
    constexpr std::uint32_t power = 0x7b807b80;  // 2^120
    std::uint32_t result;
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(result) : "r"(pair), "r"(power));
    return result;
  }
  __device__ static std::uint32_t minus(std::uint32_t a, std::uint32_t b) {
    std::uint32_t result;
    asm("sub.rn.bf16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
    return result;
  }
  /// bf16 with 7 bits of a number below 128's: exact, as is what is subtracted then.
  static constexpr std::uint32_t magic = 0x43004300;
  /// (word & mask) | magic, in one instruction, which compilers make two of.
  __device__ static std::uint32_t with_magic(std::uint32_t word, std::uint32_t mask) {
    std::uint32_t result;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(result) : "r"(word), "r"(mask), "r"(magic));
    return result;
  }

  /// One side's words of half a part.
  struct Words {
    std::uint32_t at[bits == 8 ? 2 : 1];
  };
  __device__ static Words load_words(const std::uint8_t* side, int half, int lane) {
    Words words;
    if constexpr (bits == 8) {
      const uint2 two = reinterpret_cast<const uint2*>(side)[2 * lane + half];
      words.at[0] = two.x;
      words.at[1] = two.y;
    } else {
      words.at[0] = reinterpret_cast<const std::uint32_t*>(side)[2 * lane + half];
    }
    return words;
  }
  /// Pairs (low, high) of a step, as bf16.
  __device__ static void numbers_of(const Words& words, int step, std::uint32_t& low,
                                    std::uint32_t& high) {
    if constexpr (e4m3) {
      low = e4m3_pair<false>(words.at[step]);
      high = e4m3_pair<true>(words.at[step]);
    } else if constexpr (bits == 8) {
      const auto of_pair = [](std::uint32_t bytes) {
        return minus(with_magic(bytes, 0x007f007f), with_magic(bytes, 0x00800080));
      };
      low = of_pair(words.at[step]);
      high = of_pair(words.at[step] >> 8);
    } else {
      constexpr std::uint32_t offset = minima ? magic : 0x43084308;  // 128 or 136
      const std::uint32_t word = words.at[0] >> (step * 8);
      low = minus(with_magic(word, 0x000f000f), offset);
      high = minus(with_magic(word >> 4, 0x000f000f), offset);
    }
  }
  /// Scales or minima of a lane's output for half a part's steps, each twice.
  struct Factors {
    std::uint32_t at[2];
  };
  __device__ static Factors load_factors(const std::uint8_t* from, int half, int lane) {
    const std::uint32_t both =
        reinterpret_cast<const std::uint32_t*>(from)[lane / 4 * (groups / 2) + half * groups / 4];
    if constexpr (groups == 2) {
      const std::uint32_t one = __byte_perm(both, 0, half == 0 ? 0x1010 : 0x3232);
      return {{one, one}};
    } else {
      static_assert(groups == 4);
      return {{__byte_perm(both, 0, 0x1010), __byte_perm(both, 0, 0x3232)}};
    }
  }
  /// Scales a pair of numbers, rounded once.
  __device__ static std::uint32_t weights_of(std::uint32_t numbers, std::uint32_t scale,
                                             [[maybe_unused]] std::uint32_t minimum) {
    std::uint32_t result;
    if constexpr (minima) {
      asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(result) : "r"(numbers), "r"(scale), "r"(minimum));
    } else {
      asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(result) : "r"(numbers), "r"(scale));
    }
    return result;
  }

  /// A tile's weights for half a part: of each step as products take them, of E4M3 not yet scaled.
  struct Weights {
    std::uint32_t at[2][4];
    float scales[2];  ///< of E4M3, of each side
  };
  __device__ static void load_weights(const std::uint8_t* tile, int side_stride, int half, int lane,
                                      Weights& weights) {
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      const std::uint8_t* from = tile + side * side_stride;
      const Words words = load_words(from, half, lane);
      if constexpr (e4m3) {
        weights.scales[side] =
            reinterpret_cast<const float*>(from + layout.number_bytes())[lane / 4];
#pragma unroll
        for (int step = 0; step < 2; ++step) {
          numbers_of(words, step, weights.at[step][side], weights.at[step][side + 2]);
        }
      } else {
        const Factors scales = load_factors(from + layout.number_bytes(), half, lane);
        Factors least{};
        if constexpr (minima) {
          least = load_factors(from + layout.number_bytes() + layout.scale_bytes(), half, lane);
        }
#pragma unroll
        for (int step = 0; step < 2; ++step) {
          std::uint32_t low, high;
          numbers_of(words, step, low, high);
          weights.at[step][side] = weights_of(low, scales.at[step], least.at[step]);
          weights.at[step][side + 2] = weights_of(high, scales.at[step], least.at[step]);
        }
      }
    }
  }
  /// Scales and adds E4M3 sums of half a part in f32: weights are not rounded.
  __device__ static void add_scaled(float (&sums)[4], const float (&scales)[2],
                                    const std::uint32_t (&numbers)[2][4],
                                    const std::uint32_t (&b)[4]) {
    float own[4] = {};
    multiply_add(own, numbers[0], b[0], b[1]);
    multiply_add(own, numbers[1], b[2], b[3]);
#pragma unroll
    for (int k = 0; k < 4; ++k) sums[k] = __fmaf_rn(scales[k / 2], own[k], sums[k]);
  }

  /// Multiplies a warp's tiles from `from_tile` on.
  template <int tiles, int from_tile = 0>
  __device__ static void multiply_part(std::uint32_t x, const std::uint8_t* first,
                                       const std::uint8_t* second, int side_stride, int lane,
                                       float (&sums)[warp_tiles][row_blocks][4]) {
    // Where registers are few, loads may not move up.
#pragma unroll(row_blocks >= (e4m3 ? 6 : 8) ? 1 : 2)
    for (int half = 0; half < 2; ++half) {
      Weights weights[tiles];
#pragma unroll
      for (int tile = 0; tile < tiles; ++tile) {
        load_weights(tile == 0 ? first : second, side_stride, half, lane, weights[tile]);
      }
#pragma unroll
      for (int block = 0; block < row_blocks; ++block) {
        std::uint32_t b[4];
        const std::uint32_t row = static_cast<std::uint32_t>(8 * block + lane % 8) * x_row_bytes;
        const auto vector = static_cast<std::uint32_t>((4 * half + lane / 8) ^ (lane % 8)) * 16;
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3])
                     : "r"(x + row + vector));
        if constexpr (e4m3) {
#pragma unroll
          for (int tile = 0; tile < tiles; ++tile) {
            add_scaled(sums[from_tile + tile][block], weights[tile].scales, weights[tile].at, b);
          }
        } else {
#pragma unroll
          for (int step = 0; step < 2; ++step) {
#pragma unroll
            for (int tile = 0; tile < tiles; ++tile) {
              multiply_add(sums[from_tile + tile][block], weights[tile].at[step], b[2 * step],
                           b[2 * step + 1]);
            }
          }
        }
      }
    }
  }

  // --- products of warpgroups ---

  /// A stage's products of a warpgroup, whose warps have a tile each: of one slice, or, where a
  /// slice has but two tiles, of two.
  __device__ static void multiply_stage(const Arguments& a, std::uint32_t x,
                                        const std::uint8_t* tile, int warp, std::int32_t tiles,
                                        std::int32_t number, int lane, Flat& sums) {
    const int slice_tiles = warps / a.slices;
    const int first_warp = warp / group_warps * group_warps;
    const int slice = first_warp / slice_tiles;
    const bool has_tile = warp % slice_tiles < tiles;
    x += static_cast<std::uint32_t>(slice * a.stage_parts * x_part_bytes);
    const std::int32_t count = parts_of(a, slice, number);
    if (slice_tiles < group_warps) {
      const std::int32_t second_count = parts_of(a, slice + 1, number);
      multiply_two_slices(a, x, tile, count, second_count, has_tile, warp / slice_tiles > slice,
                          lane, sums);
    } else if (first_warp % slice_tiles < tiles) {
      multiply_slice(a, x, tile, count, has_tile, lane, sums);
    }
  }
  __device__ static void multiply_slice(const Arguments& a, std::uint32_t x,
                                        const std::uint8_t* tile, std::int32_t count, bool has_tile,
                                        int lane, Flat& sums) {
    Weights weights[2] = {};
#pragma unroll 1
    for (std::int32_t part = 0; part < count; ++part) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        // Half a part is unpacked while the one before is multiplied.
        if (has_tile)
          load_weights(tile + part * part_bytes, a.side_bytes, half, lane, weights[half]);
        hopper::begin_products();
        multiply_half(sums, weights[half].at, half_at(x, part, half));
        hopper::commit_products();
        hopper::wait_for_products<1>();
      }
    }
    hopper::wait_for_products<0>();
  }
  /// Of two slices' products one follows the other, the other slice's weights being 0 in it.
  __device__ static void multiply_two_slices(const Arguments& a, std::uint32_t x,
                                             const std::uint8_t* tile, std::int32_t count,
                                             std::int32_t second_count, bool has_tile,
                                             bool in_second, int lane, Flat& sums) {
    const std::int32_t own_count = !has_tile ? 0 : in_second ? second_count : count;
#pragma unroll 1
    for (std::int32_t part = 0; part < count; ++part) {
      // Behind the second slice's inputs all its weights are 0, and any numbers do.
      const std::uint32_t second_x =
          part < second_count ? x + static_cast<std::uint32_t>(a.stage_parts * x_part_bytes) : x;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        Weights weights{};
        if (part < own_count) {
          load_weights(tile + part * part_bytes, a.side_bytes, half, lane, weights);
        }
        std::uint32_t first[2][4], second[2][4];
#pragma unroll
        for (int step = 0; step < 2; ++step) {
#pragma unroll
          for (int k = 0; k < 4; ++k) {
            first[step][k] = in_second ? 0 : weights.at[step][k];
            second[step][k] = in_second ? weights.at[step][k] : 0;
          }
        }
        hopper::begin_products();
        multiply_half(sums, first, half_at(x, part, half));
        multiply_half(sums, second, half_at(second_x, part, half));
        hopper::commit_products();
        // The weights of two halves would take too many registers beside the most rows' sums.
        hopper::wait_for_products<(row_blocks > 9 ? 0 : 1)>();
      }
    }
    hopper::wait_for_products<0>();
  }
  __device__ static std::uint32_t half_at(std::uint32_t x, std::int32_t part, int half) {
    return x + static_cast<std::uint32_t>(part * x_part_bytes + half * x_row_bytes / 2);
  }
  __device__ static void multiply_half(Flat& sums, const std::uint32_t (&weights)[2][4],
                                       std::uint32_t x) {
    const std::uint32_t matrix = hopper::matrix_descriptor(x, 0);
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      hopper::multiply_add_rows(sums, weights[step], hopper::moved_descriptor(matrix, 32 * step),
                                true);
    }
  }
};

template <int bits, int group, bool minima, int row_blocks>
__global__ void __launch_bounds__(threads_of(row_blocks), 1)
    multiply_packed([[maybe_unused]] const __grid_constant__ Arguments arguments) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using Own = Kernel<bits, group, minima, row_blocks>;
  extern __shared__ __align__(1024) std::uint8_t memory[];
  __shared__ SharedState state;
  streamed::prepare_stages<32 * warps_of(row_blocks)>(arguments, state);
  if (threadIdx.x >= 32 * warps_of(row_blocks)) {
    if constexpr (together(row_blocks)) hopper::give_registers_back<24>();
    if (threadIdx.x < 32 * (warps_of(row_blocks) + 1)) {
      Own::copy(arguments, hopper::shared_address(memory), state);
    }
  } else {
    if constexpr (together(row_blocks)) hopper::take_registers<112>();
    wait_for_former_kernels();
    Own::multiply(arguments, memory, state);
  }
#endif
}

}  // namespace coppice::cuda::packed
