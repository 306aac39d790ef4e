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

/// A warp's part of a round. Fragments: of weights, outputs g and g + 8 of a tile, with lane =
/// 4 g + t; of x, row g; of sums, outputs g and g + 8, rows 2 t and 2 t + 1 of each block of eight.
template <int row_blocks>
class Consumer {
 public:
  __device__ Consumer(const Arguments& arguments, std::uint8_t* memory, SharedState& state)
      : arguments_(arguments),
        memory_(flatten::shared_address(memory)),
        parts_(*reinterpret_cast<Parts<row_blocks>*>(memory)),
        state_(state),
        share_(arguments),
        warp_(static_cast<int>(threadIdx.x) / 32),
        lane_(static_cast<int>(threadIdx.x) % 32) {
    // Warps that share a tile: the power of two that keeps all busy.
    tile_warps_ = consumer_warps;
    while (tile_warps_ > 1 && consumer_warps / tile_warps_ < share_.round_tiles) tile_warps_ /= 2;
    tiles_at_once_ = consumer_warps / tile_warps_;
    tile_ = warp_ % tiles_at_once_;
    first_step_ = warp_ / tiles_at_once_ * (steps / tile_warps_);
    end_step_ = first_step_ + steps / tile_warps_;
    // ldmatrix: lanes 8 i to 8 i + 7 name the rows of matrix i.
    weight_row_ = lane_ % 16;
    weight_vector_ = lane_ / 16;
    x_row_ = lane_ % 8 + (row_blocks > 1 ? lane_ / 16 * 8 : 0);
    x_vector_ = lane_ / 8 % 2;
  }

  __device__ void run() {
    Place at;
#pragma unroll 1
    for (std::int32_t round = 0; round < share_.rounds; ++round) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int block = 0; block < row_blocks; ++block) {
#pragma unroll
          for (float& sum : sums_[i][block]) sum = 0.0f;
        }
      }
      const std::int32_t tiles = share_.tiles_of(round);
#pragma unroll 1
      for (std::int32_t i = 0; i < arguments_.stage_count; ++i) {
        multiply(at, tiles);
        at.advance(arguments_);
      }
      finish(round, tiles);
    }
  }

 private:
  __device__ void multiply(const Place& at, std::int32_t tiles) {
    const std::uint32_t base =
        memory_ +
        static_cast<std::uint32_t>(at.stage * stage_bytes(share_.round_tiles, row_blocks));
    const std::uint32_t x = base + static_cast<std::uint32_t>(share_.round_tiles * tile_bytes);
    hopper::wait(&state_.filled[at.stage], at.parity);
#pragma unroll 2
    for (int step = first_step_; step < end_step_; ++step) {
      std::uint32_t rows[row_blocks][2];
      load_x(x, step, rows);
      if (tile_ < tiles) multiply_tile(base, tile_, step, rows, sums_[0]);
      if (tile_ + consumer_warps < tiles) {
        multiply_tile(base, tile_ + consumer_warps, step, rows, sums_[1]);
      }
    }
    __syncwarp();
    if (arguments_.cluster == 1) {
      if (lane_ == 0) hopper::arrive(&state_.emptied[at.stage]);
    } else if (lane_ < arguments_.cluster) {
      hopper::arrive_in_block(&state_.emptied[at.stage], lane_);
    }
  }

  __device__ void load_x(std::uint32_t x, int step, std::uint32_t (&rows)[row_blocks][2]) const {
    const std::uint32_t from =
        x + static_cast<std::uint32_t>(step / 4 * (8 * row_blocks * 128) + x_row_ * 128 +
                                       ((step % 4 * 2 + x_vector_) ^ (x_row_ % 8)) * 16);
    if constexpr (row_blocks == 1) {
      asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                   : "=r"(rows[0][0]), "=r"(rows[0][1])
                   : "r"(from)
                   : "memory");
    } else {
#pragma unroll
      for (int block = 0; block < row_blocks; block += 2) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(rows[block][0]), "=r"(rows[block][1]), "=r"(rows[block + 1][0]),
                       "=r"(rows[block + 1][1])
                     : "r"(from + static_cast<std::uint32_t>(block * 8 * 128))
                     : "memory");
      }
    }
  }
  __device__ void multiply_tile(std::uint32_t base, int tile, int step,
                                const std::uint32_t (&rows)[row_blocks][2],
                                float (&sums)[row_blocks][4]) const {
    std::uint32_t weights[4];
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(weights[0]), "=r"(weights[1]), "=r"(weights[2]), "=r"(weights[3])
                 : "r"(base + static_cast<std::uint32_t>(
                                  (step / 4 * share_.round_tiles + tile) * (tile_outputs * 128) +
                                  weight_row_ * 128 +
                                  ((step % 4 * 2 + weight_vector_) ^ (weight_row_ % 8)) * 16))
                 : "memory");
#pragma unroll
    for (int block = 0; block < row_blocks; ++block) {
      flatten::multiply_add(sums[block], weights, rows[block][0], rows[block][1]);
    }
  }

  /// Adds up what several warps have of a tile, and stores it.
  __device__ void finish(std::int32_t round, std::int32_t tiles) {
    const std::int32_t begin = share_.begin_of(round);
    if (tile_warps_ == 1) {
      if (tile_ < tiles) store_sums(begin + tile_, sums_[0]);
      if (tile_ + consumer_warps < tiles) store_sums(begin + tile_ + consumer_warps, sums_[1]);
      return;
    }
    meet();  // all have read the last stage
#pragma unroll
    for (int block = 0; block < row_blocks; ++block) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        parts_[warp_][lane_ / 4 + i / 2 * 8][8 * block + lane_ % 4 * 2 + i % 2] =
            sums_[0][block][i];
      }
    }
    meet();
    const std::int32_t outputs = tiles * tile_outputs;
    for (std::int32_t at = static_cast<std::int32_t>(threadIdx.x); at < outputs * arguments_.rows;
         at += consumers) {
      const std::int32_t row = at / outputs;
      const std::int32_t output = at - row * outputs;
      float sum = 0.0f;
      for (int part = 0; part < tile_warps_; ++part) {
        sum += parts_[part * tiles_at_once_ + output / tile_outputs][output % tile_outputs][row];
      }
      store(row, begin * tile_outputs + output, sum);
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
  const std::uint32_t memory_;
  Parts<row_blocks>& parts_;
  SharedState& state_;
  const Share share_;
  const int warp_, lane_;
  int tile_warps_, tiles_at_once_, tile_, first_step_, end_step_;
  int weight_row_, weight_vector_, x_row_, x_vector_;
  float sums_[2][row_blocks][4];
};

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
    Consumer<row_blocks>(arguments, memory, state).run();
  }
  if (arguments.cluster > 1) hopper::cluster_meet();
#endif
}

}  // namespace coppice::cuda::streamed
