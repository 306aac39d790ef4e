// What the kernels of streamed_linear.h have in common: which outputs and inputs a block has, and
// the warps that copy them.
//
// A tile is 16 outputs (streamed_output.cuh). The blocks of a cluster have the same tiles, and of
// the inputs each an equal part. A stage in shared memory has some parts of 64 inputs: first the
// weights of a round's tiles, part by part, then the rows of x.
#pragma once

#include "kernels/cuda/async_copies.cuh"
#include "kernels/cuda/kernel_order.cuh"
#include "kernels/cuda/linear/streamed_output.cuh"

namespace coppice::cuda::streamed {

inline std::int32_t narrowed(std::int64_t value) { return static_cast<std::int32_t>(value); }
/// A size or stride as tensor maps take it.
inline std::uint64_t size(std::int64_t value) { return static_cast<std::uint64_t>(value); }

inline constexpr int consumer_warps = 8;
inline constexpr int consumers = 32 * consumer_warps;
inline constexpr int copying_warps = 2;  ///< one alone is slower than an H200's memory
inline constexpr int threads = consumers + 32 * copying_warps;
inline constexpr int most_tiles = 16;  ///< of a round
inline constexpr int most_stages = 32;

struct Arguments {
  /// x and plain weights as [64 inputs][row][in / 64]; gated weights with [side] before the last,
  /// rotated ones with [side][head].
  CUtensorMap weights, x;
  Output output;
  std::int32_t tiles;        ///< of a cluster
  std::int32_t larger;       ///< clusters that have one more
  std::int32_t round_tiles;  ///< most of a round
  std::int32_t rounds;
  std::int32_t parts;  ///< of a stage, at most 32 / round_tiles
  std::int32_t stage_bytes;
  std::int32_t stage_count;  ///< of a block's inputs
  std::int32_t stages;       ///< in shared memory
  std::int32_t sums_at;      ///< in shared memory, bytes
};

struct SharedState {
  std::uint64_t filled[most_stages], emptied[most_stages];
};

/// The floats of a row of sums in shared memory, such that what a warp stores of a tile goes to
/// different banks.
__host__ __device__ constexpr int sums_stride(int outputs) { return outputs + 4; }

/// A tile's sums as products leave them: rows 2 t and 2 t + 1, each side's element.
__device__ inline void store_sums(float* to, int stride, const float* sums) {
  to[0] = sums[0];
  to[stride] = sums[1];
  to[pair_outputs] = sums[2];
  to[stride + pair_outputs] = sums[3];
}

__device__ inline int rank_in_cluster() {
  int rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

/// A block's tiles, in rounds the last of which may have fewer, and its stages.
template <int split>
struct Share {
  std::int32_t first, end, round_tiles;
  int rank;

  template <typename Arguments>
  __device__ explicit Share(const Arguments& arguments)
      : round_tiles(arguments.round_tiles), rank(split == 1 ? 0 : rank_in_cluster()) {
    const std::int32_t cluster = static_cast<std::int32_t>(blockIdx.x) / split;
    first = cluster * arguments.tiles + min(cluster, arguments.larger);
    end = first + arguments.tiles + (cluster < arguments.larger ? 1 : 0);
  }
  __device__ std::int32_t begin_of(std::int32_t round) const { return first + round * round_tiles; }
  __device__ std::int32_t tiles_of(std::int32_t round) const {
    return max(min(end - begin_of(round), round_tiles), 0);
  }
};

/// Where a walk over stages is in shared memory.
struct Place {
  std::int32_t stage = 0;
  int parity = 0;  ///< of the stage's fillings so far

  /// `by`: at most `stages`, of which there are so many.
  __device__ void advance(std::int32_t stages, int by = 1) {
    stage += by;
    if (stage >= stages) {
      stage -= stages;
      parity ^= 1;
    }
  }
};

/// A warp that copies every so many stages: weights before it waits for the kernels that compute x.
template <Ending ending, int split>
class Producer {
 public:
  __device__ Producer(const Arguments& arguments, std::uint32_t memory, SharedState& state)
      : arguments_(arguments),
        memory_(memory),
        state_(state),
        share_(arguments),
        lane_(static_cast<int>(threadIdx.x) % 32),
        warp_((static_cast<int>(threadIdx.x) - consumers) / 32),
        policy_(hopper::read_once()) {}

  /// `end_round`: called after the copies of each round.
  template <typename EndRound>
  __device__ void run(EndRound end_round) {
    const std::int32_t count = arguments_.stage_count;
    const std::int32_t ahead = min(arguments_.stages, count);
    Place x_at;
    x_at.advance(arguments_.stages, warp_);
    Place weights_at = x_at;
    begin_round(0);
#pragma unroll 1
    for (std::int32_t i = warp_; i < ahead; i += copying_warps) {
      copy_weights(weights_at, i);
      weights_at.advance(arguments_.stages, copying_warps);
    }
    wait_for_former_kernels();
    std::int32_t i = warp_;
#pragma unroll 1
    for (std::int32_t round = 0; round < arguments_.rounds; ++round) {
      if (round > 0) begin_round(round);
#pragma unroll 1
      for (; i < count; i += copying_warps) {
        if (round > 0 || i >= ahead) copy_weights(x_at, i);
        copy_x(x_at, i);
        x_at.advance(arguments_.stages, copying_warps);
      }
      i -= count;
      __syncwarp();  // barriers take whole warps
      end_round(round);
    }
  }

 private:
  __device__ std::uint32_t place(const Place& at) const {
    return memory_ + static_cast<std::uint32_t>(at.stage * arguments_.stage_bytes);
  }
  __device__ std::int32_t first_part(std::int32_t number) const {
    return (share_.rank * arguments_.stage_count + number) * arguments_.parts;
  }

  /// A tile and part for each lane: one that started all copies would be slower than the memory.
  __device__ void begin_round(std::int32_t round) {
    const std::int32_t tiles = share_.tiles_of(round);
    own_part_ = lane_ / max(tiles, 1);
    const std::int32_t own = lane_ - own_part_ * tiles, tile = share_.begin_of(round) + own;
    copies_ = lane_ < tiles * arguments_.parts;
    to_ = static_cast<std::uint32_t>((own_part_ * share_.round_tiles + own) * tile_bytes);
    row_ = tile * (ending == Ending::plain ? tile_outputs : pair_outputs);
    if constexpr (ending == Ending::rotated) {
      const std::int32_t half = arguments_.output.rope.half_dim;
      head_ = row_ / half;
      row_ -= head_ * half;
    }
    bytes_ = arguments_.stage_bytes - (share_.round_tiles - tiles) * arguments_.parts * tile_bytes;
  }
  __device__ void copy_weights(const Place& at, std::int32_t number) {
    std::uint64_t* filled = &state_.filled[at.stage];
    hopper::wait(&state_.emptied[at.stage], at.parity ^ 1);
    if (lane_ == 0) hopper::arrive_expecting(filled, bytes_);
    __syncwarp();
    if (!copies_) return;
    const std::uint32_t to = place(at) + to_;
    const std::int32_t part = first_part(number) + own_part_;
    if constexpr (ending == Ending::rotated) {
      hopper::copy_box_once(to, arguments_.weights, filled, policy_, 0, row_, 0, head_, part);
    } else if constexpr (ending == Ending::gated) {
      hopper::copy_box_once(to, arguments_.weights, filled, policy_, 0, row_, 0, part);
    } else {
      hopper::copy_box_once(to, arguments_.weights, filled, policy_, 0, row_, part);
    }
  }
  __device__ void copy_x(const Place& at, std::int32_t number) const {
    if (lane_ != 0) return;
    hopper::copy_box(
        place(at) + static_cast<std::uint32_t>(arguments_.parts * share_.round_tiles * tile_bytes),
        arguments_.x, 0, 0, first_part(number), &state_.filled[at.stage]);
  }

  const Arguments& arguments_;
  const std::uint32_t memory_;
  SharedState& state_;
  const Share<split> share_;
  const int lane_, warp_;
  const std::uint64_t policy_;
  // In a round, whether this lane copies a tile and part, which, and the bytes of all.
  bool copies_;
  std::int32_t own_part_, row_, head_;
  std::uint32_t to_;
  int bytes_;
};

/// What all threads of a block do first.
template <int consumer_threads = consumers, typename Arguments>
__device__ inline void prepare_stages(const Arguments& arguments, SharedState& state) {
  let_next_kernel_begin();
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < arguments.stages; ++stage) {
      hopper::init_barrier(&state.filled[stage], 1);
      hopper::init_barrier(&state.emptied[stage], consumer_threads / 32);
    }
    hopper::publish_barriers();
  } else if (threadIdx.x == consumer_threads) {
    hopper::prefetch_map(arguments.weights);
    hopper::prefetch_map(arguments.x);
  }
  __syncthreads();
}

/// All consumers of a block.
__device__ inline void meet() { hopper::block_barrier_wait(1, consumers); }

}  // namespace coppice::cuda::streamed
