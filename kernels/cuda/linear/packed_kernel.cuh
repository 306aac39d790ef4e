// The kernel of packed_linear.h.
//
// A block's tiles are worked at in rounds. Inputs are cut into `slices` equal runs of parts, each
// of which some warps add up for themselves; the runs' sums are then added in their order. A stage
// in shared memory has some parts of every slice: first of x, then of the weights.
#pragma once

#include <cuda_fp16.h>

#include "kernels/cuda/linear/packed_layout.h"
#include "kernels/cuda/linear/streamed_stages.cuh"

namespace coppice::cuda::packed {

using streamed::consumer_warps;
using streamed::consumers;
using streamed::End;
using streamed::Ending;
using streamed::Four;
using streamed::most_stages;
using streamed::Output;
using streamed::pair_outputs;
using streamed::SharedState;
using streamed::tile_outputs;

inline constexpr int threads = consumers + 32;  ///< one warp copies
inline constexpr int warp_tiles = 2;            ///< most of a warp in a round
inline constexpr int x_row_bytes = 128;         ///< of a part

struct Arguments {
  CUtensorMap x;  ///< [64 inputs][row][in / 64]
  const std::uint8_t* weights;
  Output output;
  Ending ending;
  std::int32_t side_bytes;   ///< of all its parts
  std::int32_t tiles;        ///< of a block
  std::int32_t larger;       ///< blocks that have one more
  std::int32_t round_tiles;  ///< most of a round
  std::int32_t rounds;
  std::int32_t slices;       ///< of the inputs: 1, 2, 4 or 8
  std::int32_t all_parts;    ///< of the inputs
  std::int32_t slice_parts;  ///< of a slice; the last may have fewer
  std::int32_t stage_parts;  ///< of a slice, in a stage
  std::int32_t stage_bytes;
  std::int32_t stage_count;  ///< of a round
  std::int32_t stages;       ///< in shared memory
  std::int32_t sums_at;      ///< in shared memory, bytes
};

/// Parts of slice `slice` in stage `number` of a round.
__device__ inline std::int32_t parts_of(const Arguments& a, std::int32_t slice,
                                        std::int32_t number) {
  const std::int32_t begin = slice * a.slice_parts + number * a.stage_parts;
  const std::int32_t end = min((slice + 1) * a.slice_parts, a.all_parts);
  return max(min(end - begin, a.stage_parts), 0);
}

__device__ inline void copy_bytes_once(std::uint32_t shared, const void* global, int bytes,
                                       std::uint64_t* barrier, std::uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1], %2, [%3], %4;"
      :
      : "r"(shared), "l"(__cvta_generic_to_global(global)), "r"(bytes),
        "r"(hopper::shared_address(barrier)), "l"(policy)
      : "memory");
}

struct Place {
  std::int32_t stage = 0;
  int parity = 0;
  __device__ void advance(std::int32_t stages) {
    if (++stage == stages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

/// A block's tiles.
struct Share {
  std::int32_t first, end, round_tiles;
  __device__ explicit Share(const Arguments& a) : round_tiles(a.round_tiles) {
    const auto block = static_cast<std::int32_t>(blockIdx.x);
    first = block * a.tiles + min(block, a.larger);
    end = first + a.tiles + (block < a.larger ? 1 : 0);
  }
  __device__ std::int32_t begin_of(std::int32_t round) const { return first + round * round_tiles; }
  __device__ std::int32_t tiles_of(std::int32_t round) const {
    return max(min(end - begin_of(round), round_tiles), 0);
  }
};

/// Which side of the weights is side 0 or 1 of a tile.
__device__ inline std::int32_t side_of(const Arguments& a, std::int32_t tile, std::int32_t side) {
  switch (a.ending) {
    case Ending::plain:
      return 2 * tile + side;
    case Ending::gated:
      return tile + side * (a.output.width / pair_outputs);
    case Ending::rotated:
      break;
  }
  const std::int32_t half = a.output.rope.half_dim / pair_outputs, head = tile / half;
  return head * 2 * half + side * half + (tile - head * half);
}

/// The barrier at which a round's sums have been read and stages may be filled again.
__device__ inline void end_round() { hopper::block_barrier_wait(2, threads); }

template <int bits, int group, bool minima, int row_blocks>
class Kernel {
  static constexpr PackedLayout layout{bits, group, minima};
  static constexpr int part_bytes = layout.part_bytes();
  static constexpr int x_part_bytes = row_blocks * 8 * x_row_bytes;
  static constexpr int groups = static_cast<int>(packed_part) / group;  ///< of a part

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
    const int lane = thread % 32, warp = thread / 32;
    const int tiles_at_once = consumer_warps / a.slices;
    const int slice = warp / tiles_at_once, own = warp % tiles_at_once;
    const std::uint32_t base = hopper::shared_address(memory);
    auto* const sums_memory = reinterpret_cast<float*>(memory + a.sums_at);
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
      const bool second = own + tiles_at_once < tiles;
#pragma unroll 1
      for (std::int32_t i = 0; i < a.stage_count; ++i) {
        hopper::wait(&state.filled[at.stage], at.parity);
        if (own < tiles) {
          const std::int32_t count = parts_of(a, slice, i);
          const std::uint32_t stage = base + static_cast<std::uint32_t>(at.stage * a.stage_bytes);
          const std::uint32_t x =
              stage + static_cast<std::uint32_t>(slice * a.stage_parts * x_part_bytes);
          const std::uint32_t weights =
              stage + static_cast<std::uint32_t>(a.slices * a.stage_parts * x_part_bytes +
                                                 slice * 2 * share.round_tiles * a.stage_parts *
                                                     part_bytes);
          const auto of_tile = [&](int tile) {
            return weights + static_cast<std::uint32_t>(tile * 2 * a.stage_parts * part_bytes);
          };
#pragma unroll 1
          for (std::int32_t part = 0; part < count; ++part) {
            const auto in_side = static_cast<std::uint32_t>(part * part_bytes);
            const auto side_stride = static_cast<std::uint32_t>(a.stage_parts * part_bytes);
            const std::uint32_t x_part = x + static_cast<std::uint32_t>(part * x_part_bytes);
            if (second) {
              multiply_part<2>(x_part, of_tile(own) + in_side,
                               of_tile(own + tiles_at_once) + in_side, side_stride, lane, sums);
            } else {
              multiply_part<1>(x_part, of_tile(own) + in_side, 0, side_stride, lane, sums);
            }
          }
        }
        __syncwarp();
        if (lane == 0) hopper::arrive(&state.emptied[at.stage]);
        at.advance(a.stages);
      }
      streamed::meet();  // stages are read: sums may lie there
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
      streamed::meet();
      const auto sum_at = [&](std::int32_t row, std::int32_t output) {
        const float* from = sums_memory + row * stride + output;
        Four sum = load<vector_width>(from);
#pragma unroll 1
        for (int s = 1; s < a.slices; ++s) {
          streamed::add(sum, load<vector_width>(from + s * slice_floats));
        }
#pragma unroll
        for (float& value : sum.at) value *= 1.0f / scale_unit;
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
        asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
        end_round();
      }
    }
  }

 private:
  /// A side and slice for each lane.
  __device__ static void copy_weights(const Arguments& a, const Share& share, std::int32_t round,
                                      std::int32_t number, std::int32_t lane, std::uint32_t memory,
                                      const Place& at, std::uint64_t policy, SharedState& state) {
    std::uint64_t* filled = &state.filled[at.stage];
    const std::int32_t tiles = share.tiles_of(round);
    hopper::wait(&state.emptied[at.stage], at.parity ^ 1);
    if (lane == 0) {
      int bytes = 0;
      for (std::int32_t slice = 0; slice < a.slices; ++slice) {
        const int parts = parts_of(a, slice, number);
        bytes += parts * part_bytes * 2 * tiles;
        if (parts > 0) bytes += a.stage_parts * x_part_bytes;
      }
      hopper::arrive_expecting(filled, bytes);
    }
    __syncwarp();
    const std::int32_t sides = 2 * share.round_tiles, slice = lane / sides, side = lane % sides;
    if (slice >= a.slices || side >= 2 * tiles) return;
    const int parts = parts_of(a, slice, number);
    if (parts == 0) return;
    const std::int32_t from = side_of(a, share.begin_of(round) + side / 2, side % 2);
    const std::int32_t part = slice * a.slice_parts + number * a.stage_parts;
    copy_bytes_once(
        memory + static_cast<std::uint32_t>(at.stage * a.stage_bytes +
                                            a.slices * a.stage_parts * x_part_bytes +
                                            (slice * sides + side) * a.stage_parts * part_bytes),
        a.weights + std::int64_t{from} * a.side_bytes + std::int64_t{part} * part_bytes,
        parts * part_bytes, filled, policy);
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

  __device__ static std::uint32_t minus(std::uint32_t a, std::uint32_t b) {
    std::uint32_t result;
    asm("sub.rn.bf16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
    return result;
  }
  /// bf16 with 7 bits of a number below 128's: exact, as is what is subtracted then.
  static constexpr std::uint32_t magic = 0x43004300;

  /// Of one side: the words of a part.
  struct Words {
    std::uint32_t at[bits == 8 ? 4 : 2];
  };
  __device__ static Words load_words(std::uint32_t side, int lane) {
    Words words;
    if constexpr (bits == 8) {
      asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(words.at[0]), "=r"(words.at[1]), "=r"(words.at[2]), "=r"(words.at[3])
                   : "r"(side + static_cast<std::uint32_t>(lane * 16)));
    } else {
      asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];"
                   : "=r"(words.at[0]), "=r"(words.at[1])
                   : "r"(side + static_cast<std::uint32_t>(lane * 8)));
    }
    return words;
  }
  /// Pairs (low, high) of a step.
  __device__ static void numbers_of(const Words& words, int step, std::uint32_t& low,
                                    std::uint32_t& high) {
    if constexpr (bits == 8) {
      const auto of_pair = [](std::uint32_t bytes) {
        return minus((bytes & 0x007f007fu) | magic, (bytes & 0x00800080u) | magic);
      };
      low = of_pair(words.at[step]);
      high = of_pair(words.at[step] >> 8);
    } else {
      constexpr std::uint32_t offset = 0x43084308;  // 136
      const std::uint32_t word = words.at[step / 2] >> (step % 2 * 8);
      low = minus((word & 0x000f000fu) | magic, offset);
      high = minus((word >> 4 & 0x000f000fu) | magic, offset);
    }
  }
  /// A part's scales or minima of a lane's output.
  struct Factors {
    float at[groups];
  };
  __device__ static Factors load_factors(std::uint32_t from, int lane) {
    Factors factors;
    from += static_cast<std::uint32_t>(lane / 4 * groups * 2);
    std::uint32_t halves[groups / 2];
    if constexpr (groups == 4) {
      asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];"
                   : "=r"(halves[0]), "=r"(halves[1])
                   : "r"(from));
    } else {
      static_assert(groups == 2);
      asm volatile("ld.shared.u32 %0, [%1];" : "=r"(halves[0]) : "r"(from));
    }
#pragma unroll
    for (int i = 0; i < groups / 2; ++i) {
      const float2 both = __half22float2(*reinterpret_cast<const __half2*>(&halves[i]));
      factors.at[2 * i] = both.x;
      factors.at[2 * i + 1] = both.y;
    }
    return factors;
  }

  __device__ static void multiply(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                  std::uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
        : "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(0.0f));
  }
  __device__ static void multiply_add(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                      std::uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }

  template <int tiles>
  __device__ static void multiply_part(std::uint32_t x, std::uint32_t first, std::uint32_t second,
                                       std::uint32_t side_stride, int lane,
                                       float (&sums)[warp_tiles][row_blocks][4]) {
    Words words[tiles][2];
    Factors scales[tiles][2], least[tiles][2];
#pragma unroll
    for (int tile = 0; tile < tiles; ++tile) {
#pragma unroll
      for (int side = 0; side < 2; ++side) {
        const std::uint32_t from =
            (tile == 0 ? first : second) + static_cast<std::uint32_t>(side) * side_stride;
        words[tile][side] = load_words(from, lane);
        scales[tile][side] = load_factors(from + layout.number_bytes(), lane);
        if constexpr (minima) {
          least[tile][side] =
              load_factors(from + layout.number_bytes() + layout.scale_bytes(), lane);
        }
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      std::uint32_t numbers[tiles][2][4];  // of two steps
#pragma unroll
      for (int tile = 0; tile < tiles; ++tile) {
#pragma unroll
        for (int step = 0; step < 2; ++step) {
#pragma unroll
          for (int side = 0; side < 2; ++side) {
            numbers_of(words[tile][side], 2 * half + step, numbers[tile][step][side],
                       numbers[tile][step][side + 2]);
          }
        }
      }
#pragma unroll
      for (int block = 0; block < row_blocks; ++block) {
        std::uint32_t b[4];
        const std::uint32_t row = static_cast<std::uint32_t>(8 * block + lane % 8) * x_row_bytes;
        const auto vector = static_cast<std::uint32_t>((4 * half + lane / 8) ^ (lane % 8)) * 16;
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3])
                     : "r"(x + row + vector));
        if constexpr (group == 32) {
          float of_x[4];
          if constexpr (minima) {
            constexpr std::uint32_t ones[4] = {0x3f803f80, 0x3f803f80, 0x3f803f80, 0x3f803f80};
            multiply(of_x, ones, b[0], b[1]);
            multiply_add(of_x, ones, b[2], b[3]);
          }
#pragma unroll
          for (int tile = 0; tile < tiles; ++tile) {
            float c[4];
            multiply(c, numbers[tile][0], b[0], b[1]);
            multiply_add(c, numbers[tile][1], b[2], b[3]);
#pragma unroll
            for (int k = 0; k < 4; ++k) {
              float& sum = sums[tile][block][k];
              sum = fmaf(c[k], scales[tile][k / 2].at[half], sum);
              if constexpr (minima) sum = fmaf(of_x[k], least[tile][k / 2].at[half], sum);
            }
          }
        } else {
          static_assert(group == 16 && !minima);
#pragma unroll
          for (int tile = 0; tile < tiles; ++tile) {
#pragma unroll
            for (int step = 0; step < 2; ++step) {
              float c[4];
              multiply(c, numbers[tile][step], b[2 * step], b[2 * step + 1]);
#pragma unroll
              for (int k = 0; k < 4; ++k) {
                float& sum = sums[tile][block][k];
                sum = fmaf(c[k], scales[tile][k / 2].at[2 * half + step], sum);
              }
            }
          }
        }
      }
    }
  }
};

template <int bits, int group, bool minima, int row_blocks>
__global__ void __launch_bounds__(threads, 1)
    multiply_packed([[maybe_unused]] const __grid_constant__ Arguments arguments) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using Own = Kernel<bits, group, minima, row_blocks>;
  extern __shared__ __align__(1024) std::uint8_t memory[];
  __shared__ SharedState state;
  let_next_kernel_begin();
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < arguments.stages; ++stage) {
      hopper::init_barrier(&state.filled[stage], 1);
      hopper::init_barrier(&state.emptied[stage], consumer_warps);
    }
    hopper::publish_barriers();
  } else if (threadIdx.x == consumers) {
    hopper::prefetch_map(arguments.x);
  }
  __syncthreads();
  if (threadIdx.x >= consumers) {
    Own::copy(arguments, hopper::shared_address(memory), state);
  } else {
    wait_for_former_kernels();
    Own::multiply(arguments, memory, state);
  }
#endif
}

}  // namespace coppice::cuda::packed
