// The kernel of streamed_linear.h.
//
// A tile is 16 outputs. A stage has 128 inputs of all tiles of a round, and of the rows of x; one
// thread copies them, weights before it waits for the kernels that compute x. Eight warps multiply,
// weights as the left operand: with more than eight tiles a warp has two, with fewer several warps
// share a tile and divide the inputs of each stage among themselves.
//
// The blocks of a cluster walk the inputs alike: each copies its part of a stage's x to all of
// them. So a stage is emptied when the consumers of all blocks say so, and filled when all blocks'
// parts of x have come, and the block's own weights.
#pragma once

#include "kernels/cuda/async_copies.cuh"
#include "kernels/cuda/kernel_order.cuh"

namespace coppice::cuda::streamed {

inline constexpr int consumer_warps = 8;
inline constexpr int consumers = 32 * consumer_warps;
inline constexpr int threads = consumers + 32;
inline constexpr int tile_outputs = 16;
inline constexpr int stage_inputs = 128;
inline constexpr int steps = stage_inputs / 16;  ///< products of a stage and tile
inline constexpr int tile_bytes = tile_outputs * stage_inputs * 2;
inline constexpr int most_tiles = 2 * consumer_warps;  ///< of a round
inline constexpr int most_stages = 32;
/// Less with few rows, so that there is room beside the kernels before.
inline constexpr int few_rows_bytes = 160 * 1024;
inline constexpr int many_rows_bytes = 208 * 1024;
inline constexpr int most_cluster = 4;

constexpr int stage_bytes(int round_tiles, int row_blocks) {
  return round_tiles * tile_bytes + 8 * row_blocks * stage_inputs * 2;
}
static_assert(few_rows_bytes / stage_bytes(most_tiles, 2) >= 2);
static_assert(many_rows_bytes / stage_bytes(most_tiles, 10) >= 2);

struct Arguments {
  CUtensorMap weights, x;  ///< as [64 inputs][row][in / 64]; x by boxes of a block's part
  const float* bias;       ///< or null
  float* out;
  std::int32_t rows, out_features;
  std::int32_t tiles;        ///< of all outputs
  std::int32_t round_tiles;  ///< most of a round
  std::int32_t stage_count;  ///< ceil(in / stage_inputs)
  std::int32_t stages;       ///< in shared memory
  std::int32_t rounds;       ///< of every block
  std::int32_t cluster;      ///< blocks of a cluster: 1, 2 or 4
  bool accumulate;
};

struct SharedState {
  std::uint64_t filled[most_stages], emptied[most_stages];
};
/// What the warps that share tiles have of them: where the stages were, as there is one round then
/// and all of its stages are read.
template <int row_blocks>
using Parts = float[consumer_warps][tile_outputs][8 * row_blocks];
static_assert(sizeof(Parts<10>) <= many_rows_bytes && sizeof(Parts<2>) <= few_rows_bytes);

/// The tiles of a block, in rounds, the last of which may have none.
struct Share {
  std::int32_t first, end, round_tiles, rounds;

  __device__ explicit Share(const Arguments& arguments)
      : round_tiles(arguments.round_tiles), rounds(arguments.rounds) {
    const std::int64_t tiles = arguments.tiles;
    first = static_cast<std::int32_t>(tiles * blockIdx.x / gridDim.x);
    end = static_cast<std::int32_t>(tiles * (blockIdx.x + 1) / gridDim.x);
  }
  __device__ std::int32_t begin_of(std::int32_t round) const { return first + round * round_tiles; }
  __device__ std::int32_t tiles_of(std::int32_t round) const {
    return max(min(end - begin_of(round), round_tiles), 0);
  }
};

/// Where a walk over the stages of all rounds is, without a division.
struct Place {
  std::int32_t stage = 0;   ///< in shared memory
  int parity = 0;           ///< of the stage's fillings so far
  std::int32_t number = 0;  ///< of the stage in its round
  std::int32_t round = 0;

  __device__ void advance(const Arguments& arguments) {
    if (++stage == arguments.stages) {
      stage = 0;
      parity ^= 1;
    }
    if (++number == arguments.stage_count) {
      number = 0;
      ++round;
    }
  }
};

template <int row_blocks>
__device__ void copy(const Arguments& arguments, std::uint32_t memory, SharedState& state) {
  const Share share(arguments);
  const auto bytes = static_cast<std::uint32_t>(stage_bytes(share.round_tiles, row_blocks));
  const std::uint32_t weight_bytes = static_cast<std::uint32_t>(share.round_tiles * tile_bytes);
  // A round with fewer tiles than others reads on into its neighbour's, which are read anyway.
  const auto copy_weights = [&](const Place& at) {
    std::uint64_t* filled = &state.filled[at.stage];
    hopper::wait(&state.emptied[at.stage], at.parity ^ 1);
    hopper::arrive_expecting(filled, static_cast<int>(bytes));
    hopper::copy_box(memory + static_cast<std::uint32_t>(at.stage) * bytes, arguments.weights, 0,
                     share.begin_of(at.round) * tile_outputs, at.number * (stage_inputs / 64),
                     filled);
  };
  // Block r of two copies 64 of the inputs; of four, of half the rows.
  const int rank = arguments.cluster == 1 ? 0 : hopper::block_in_cluster();
  const int x_half = rank % 2;
  const int x_first = rank / 2 * (4 * row_blocks);
  const auto copy_x = [&](const Place& at) {
    std::uint64_t* filled = &state.filled[at.stage];
    const int part = at.number * (stage_inputs / 64);
    const std::uint32_t x = memory + static_cast<std::uint32_t>(at.stage) * bytes + weight_bytes;
    if (arguments.cluster == 1) {
      hopper::copy_box(x, arguments.x, 0, 0, part, filled);
      return;
    }
    hopper::copy_box_to_cluster(
        x + static_cast<std::uint32_t>((x_half * 8 * row_blocks + x_first) * 128), arguments.x, 0,
        x_first, part + x_half, filled, static_cast<std::uint16_t>((1 << arguments.cluster) - 1));
  };
  const std::int32_t all = share.rounds * arguments.stage_count;
  const std::int32_t ahead = min(arguments.stages, all);
  Place weights_at, x_at;
#pragma unroll 1
  for (std::int32_t i = 0; i < ahead; ++i) {
    copy_weights(weights_at);
    weights_at.advance(arguments);
  }
  wait_for_former_kernels();
#pragma unroll 1
  for (std::int32_t i = 0; i < all; ++i) {
    if (i >= ahead) copy_weights(x_at);
    copy_x(x_at);
    x_at.advance(arguments);
  }
}

/// How a block's warps divide the tiles of a round: with more tiles than warps some warps have a
/// second one; with fewer, several warps share a tile, each with some steps of every stage.
struct Division {
  int tile_warps = consumer_warps;  ///< that share a tile: the power of two that keeps most busy
  int tile, first_step;             ///< of this warp; its second tile is `consumer_warps` further
  int tiles;                        ///< of this warp: 0, 1 or 2

  __device__ Division(int round_tiles, int warp) {
    while (tile_warps > 1 && consumer_warps / tile_warps < round_tiles) tile_warps /= 2;
    tile = warp % tiles_at_once();
    first_step = warp / tiles_at_once() * (steps / tile_warps);
    tiles = (tile < round_tiles ? 1 : 0) + (tile + consumer_warps < round_tiles ? 1 : 0);
  }
  __device__ int tiles_at_once() const { return consumer_warps / tile_warps; }
};

/// A warp that has `tiles` tiles and `own_steps` steps of each stage. Fragments: of weights,
/// outputs g and g + 8 of a tile, with lane = 4 g + t; of x, row g; of sums, outputs g and g + 8,
/// rows 2 t and 2 t + 1 of each block of eight.
template <int row_blocks, int tiles, int own_steps>
class Consumer {
 public:
  __device__ Consumer(const Arguments& arguments, const Division& division, std::uint8_t* memory,
                      SharedState& state)
      : arguments_(arguments),
        division_(division),
        memory_(flatten::shared_address(memory)),
        parts_(*reinterpret_cast<Parts<row_blocks>*>(memory)),
        state_(state),
        share_(arguments),
        lane_(static_cast<int>(threadIdx.x) % 32) {
    // Step s of a half is two vectors of 16 bytes from 2 s on, which the swizzle moves to
    // vector ^ (row % 8): so to the bits of 32 s over where the half's first step is.
    const int half = division.first_step / steps_of_half;
    const int first = division.first_step % steps_of_half * 2;
    // ldmatrix: lanes 8 i to 8 i + 7 name the rows of matrix i.
    const int weight_row = lane_ % 16;
    const int x_row = lane_ % 8 + (row_blocks > 1 ? lane_ / 16 * 8 : 0);
    weights_at_ = static_cast<std::uint32_t>(half * half_bytes() + division.tile * tile_half_bytes +
                                             weight_row * 128 +
                                             ((first + lane_ / 16) ^ (weight_row % 8)) * 16);
    x_at_ = static_cast<std::uint32_t>(share_.round_tiles * tile_bytes + half * x_half_bytes +
                                       x_row * 128 + ((first + lane_ / 8 % 2) ^ (x_row % 8)) * 16);
  }

  __device__ void run() {
    Place at;
#pragma unroll 1
    for (std::int32_t round = 0; round < share_.rounds; ++round) {
#pragma unroll
      for (int tile = 0; tile < tiles; ++tile) {
#pragma unroll
        for (int block = 0; block < row_blocks; ++block) {
#pragma unroll
          for (float& sum : sums_[tile][block]) sum = 0.0f;
        }
      }
#pragma unroll 1
      for (std::int32_t i = 0; i < arguments_.stage_count; ++i) {
        hopper::wait(&state_.filled[at.stage], at.parity);
        if constexpr (tiles > 0) multiply(at.stage);
        __syncwarp();
        release(at.stage);
        at.advance(arguments_);
      }
      finish(round, share_.tiles_of(round));
    }
  }

 private:
  static constexpr int steps_of_half = steps / 2;
  static constexpr int tile_half_bytes = tile_outputs * 128;
  static constexpr int x_half_bytes = 8 * row_blocks * 128;
  static constexpr int step_registers = 4 * tiles + 2 * row_blocks;
  /// Steps whose fragments are loaded together, while those before are multiplied.
  static constexpr int group_steps() {
    int most = own_steps;
    while (most > 1 && most * step_registers > 24) most /= 2;
    return most;
  }
  struct Fragments {
    std::uint32_t weights[group_steps()][tiles == 0 ? 1 : tiles][4];
    std::uint32_t x[group_steps()][row_blocks][2];
  };

  __device__ int half_bytes() const { return share_.round_tiles * tile_half_bytes; }

  __device__ void multiply(std::int32_t stage) {
    const std::uint32_t base =
        memory_ + static_cast<std::uint32_t>(stage * stage_bytes(share_.round_tiles, row_blocks));
    constexpr int groups = own_steps / group_steps();
    Fragments fragments[2];
    load(base, 0, fragments[0]);
#pragma unroll
    for (int group = 0; group < groups; ++group) {
      if (group + 1 < groups) load(base, group + 1, fragments[(group + 1) % 2]);
      const Fragments& now = fragments[group % 2];
#pragma unroll
      for (int step = 0; step < group_steps(); ++step) {
#pragma unroll
        for (int tile = 0; tile < tiles; ++tile) {
#pragma unroll
          for (int block = 0; block < row_blocks; ++block) {
            multiply_add(sums_[tile][block], now.weights[step][tile], now.x[step][block]);
          }
        }
      }
    }
  }

  __device__ void load(std::uint32_t base, int group, Fragments& to) const {
#pragma unroll
    for (int i = 0; i < group_steps(); ++i) {
      const int step = group * group_steps() + i;
      const auto bits = static_cast<std::uint32_t>(step % steps_of_half * 32);
      const std::uint32_t x =
          ((base + x_at_) ^ bits) + static_cast<std::uint32_t>(step / steps_of_half * x_half_bytes);
      if constexpr (row_blocks == 1) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                     : "=r"(to.x[i][0][0]), "=r"(to.x[i][0][1])
                     : "r"(x));
      } else {
#pragma unroll
        for (int block = 0; block < row_blocks; block += 2) {
          asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                       : "=r"(to.x[i][block][0]), "=r"(to.x[i][block][1]),
                         "=r"(to.x[i][block + 1][0]), "=r"(to.x[i][block + 1][1])
                       : "r"(x + static_cast<std::uint32_t>(block * 8 * 128)));
        }
      }
      const std::uint32_t weights = ((base + weights_at_) ^ bits) +
                                    static_cast<std::uint32_t>(step / steps_of_half * half_bytes());
#pragma unroll
      for (int tile = 0; tile < tiles; ++tile) {
        std::uint32_t(&w)[4] = to.weights[i][tile];
        asm volatile(
            "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
            : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
            : "r"(weights + static_cast<std::uint32_t>(tile * consumer_warps * tile_half_bytes)));
      }
    }
  }

  /// Volatile, so that the stage is released after its last fragments have come.
  __device__ static void multiply_add(float (&c)[4], const std::uint32_t (&a)[4],
                                      const std::uint32_t (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }

  __device__ void release(std::int32_t stage) const {
    if (arguments_.cluster == 1) {
      if (lane_ == 0) hopper::arrive(&state_.emptied[stage]);
    } else if (lane_ < arguments_.cluster) {
      hopper::arrive_in_block(&state_.emptied[stage], lane_);
    }
  }

  /// Stores the round's sums. What several warps have of a tile is added up first.
  __device__ void finish(std::int32_t round, std::int32_t round_tiles) {
    const std::int32_t begin = share_.begin_of(round);
    if constexpr (own_steps == steps) {
#pragma unroll
      for (int tile = 0; tile < tiles; ++tile) {
        const int own = division_.tile + tile * consumer_warps;
        if (own < round_tiles) store_sums(begin + own, sums_[tile]);
      }
    } else {
      meet();  // all have read the last stage
      const int warp = static_cast<int>(threadIdx.x) / 32;
      if constexpr (tiles > 0) {
#pragma unroll
        for (int block = 0; block < row_blocks; ++block) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            parts_[warp][lane_ / 4 + i / 2 * 8][8 * block + lane_ % 4 * 2 + i % 2] =
                sums_[0][block][i];
          }
        }
      }
      meet();
      const std::int32_t outputs = round_tiles * tile_outputs;
      for (auto at = static_cast<std::int32_t>(threadIdx.x); at < outputs * arguments_.rows;
           at += consumers) {
        const std::int32_t row = at / outputs;
        const std::int32_t output = at - row * outputs;
        float sum = 0.0f;
#pragma unroll
        for (int part = 0; part < steps / own_steps; ++part) {
          sum += parts_[part * division_.tiles_at_once() + output / tile_outputs]
                       [output % tile_outputs][row];
        }
        store(row, begin * tile_outputs + output, sum);
      }
    }
  }
  __device__ static void meet() { hopper::block_barrier_wait(1, consumers); }

  __device__ void store_sums(std::int32_t tile, const float (&sums)[row_blocks][4]) const {
#pragma unroll
    for (int block = 0; block < row_blocks; ++block) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        store(8 * block + lane_ % 4 * 2 + i % 2, tile * tile_outputs + lane_ / 4 + i / 2 * 8,
              sums[block][i]);
      }
    }
  }
  __device__ void store(std::int32_t row, std::int32_t output, float sum) const {
    if (row >= arguments_.rows || output >= arguments_.out_features) return;
    float* to = arguments_.out + std::int64_t{row} * arguments_.out_features + output;
    if (arguments_.bias != nullptr) sum += arguments_.bias[output];
    *to = arguments_.accumulate ? *to + sum : sum;
  }

  const Arguments& arguments_;
  const Division division_;
  const std::uint32_t memory_;
  Parts<row_blocks>& parts_;
  SharedState& state_;
  const Share share_;
  const int lane_;
  std::uint32_t weights_at_, x_at_;  ///< of this lane, from a stage's begin
  float sums_[tiles == 0 ? 1 : tiles][row_blocks][4];
};

template <int row_blocks>
__device__ void consume(const Arguments& arguments, std::uint8_t* memory, SharedState& state) {
  const Division division(arguments.round_tiles, static_cast<int>(threadIdx.x) / 32);
  if (division.tile_warps == 1) {
    if (division.tiles == 2) {
      Consumer<row_blocks, 2, steps>(arguments, division, memory, state).run();
    } else if (division.tiles == 1) {
      Consumer<row_blocks, 1, steps>(arguments, division, memory, state).run();
    } else {
      Consumer<row_blocks, 0, steps>(arguments, division, memory, state).run();
    }
  } else if (division.tile_warps == 2) {
    if (division.tiles == 1) {
      Consumer<row_blocks, 1, steps / 2>(arguments, division, memory, state).run();
    } else {
      Consumer<row_blocks, 0, steps / 2>(arguments, division, memory, state).run();
    }
  } else if (division.tile_warps == 4) {
    Consumer<row_blocks, 1, steps / 4>(arguments, division, memory, state).run();
  } else {
    Consumer<row_blocks, 1, steps / 8>(arguments, division, memory, state).run();
  }
}

template <int row_blocks>
__global__ void __launch_bounds__(threads, 1)
    stream_weights([[maybe_unused]] const __grid_constant__ Arguments arguments) {
#if __CUDA_ARCH__ >= 900
  let_next_kernel_begin();
  extern __shared__ __align__(1024) std::uint8_t memory[];
  __shared__ SharedState state;
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < arguments.stages; ++stage) {
      hopper::init_barrier(&state.filled[stage], 1);
      hopper::init_barrier(&state.emptied[stage], consumer_warps * arguments.cluster);
    }
    hopper::publish_barriers();
  } else if (threadIdx.x == consumers) {
    hopper::prefetch_map(arguments.weights);
    hopper::prefetch_map(arguments.x);
  }
  __syncwarp();
  // Others' copies and arrivals come to this block's memory.
  if (arguments.cluster > 1) {
    hopper::cluster_meet();
  } else {
    __syncthreads();
  }
  if (threadIdx.x >= consumers) {
    if (threadIdx.x == consumers) {
      copy<row_blocks>(arguments, flatten::shared_address(memory), state);
    }
    __syncwarp();
  } else {
    wait_for_former_kernels();
    consume<row_blocks>(arguments, memory, state);
  }
  if (arguments.cluster > 1) hopper::cluster_meet();
#endif
}

}  // namespace coppice::cuda::streamed
