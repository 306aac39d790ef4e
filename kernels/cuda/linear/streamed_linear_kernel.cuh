// The kernel of streamed_linear.h.
//
// A tile is 16 outputs, in two sides of 8 (streamed_output.cuh). A stage has some parts of 64
// inputs of all tiles of a round, and of the rows of x; one thread copies them, weights before it
// waits for the kernels that compute x. Eight warps multiply, weights as the left operand: with
// more than eight tiles a warp has two, with four or fewer several warps share a tile, and each has
// a part of every stage to itself.
#pragma once

#include "kernels/cuda/async_copies.cuh"
#include "kernels/cuda/kernel_order.cuh"
#include "kernels/cuda/linear/streamed_output.cuh"

namespace coppice::cuda::streamed {

inline constexpr int consumer_warps = 8;
inline constexpr int consumers = 32 * consumer_warps;
inline constexpr int threads = consumers + 32;
inline constexpr int tile_outputs = 2 * pair_outputs;
inline constexpr int part_inputs = 64;
inline constexpr int part_steps = part_inputs / 16;    ///< products of a part and tile
inline constexpr int side_bytes = pair_outputs * 128;  ///< of a part
inline constexpr int tile_bytes = 2 * side_bytes;      ///< of a part
inline constexpr int most_tiles = 2 * consumer_warps;  ///< of a round
inline constexpr int most_stages = 32;
/// Leaves room beside it for the kernels before.
inline constexpr int shared_bytes = 160 * 1024;

/// Warps that share a tile: the power of two that keeps most of them busy.
constexpr int sharing_warps(int round_tiles) {
  int warps = consumer_warps;
  while (warps > 1 && consumer_warps / warps < round_tiles) warps /= 2;
  return warps;
}
/// Of a stage: one for each warp of a tile, and two where a warp has a tile to itself. Also two for
/// each of two warps of a rotated tile: its copies are many, and stages of fewer parts take the one
/// thread that starts them longer than the memory.
constexpr int parts_of_stage(Ending ending, int round_tiles) {
  const int warps = sharing_warps(round_tiles);
  return warps == 1 ? 2 : warps == 2 && ending == Ending::rotated ? 4 : warps;
}
constexpr int stage_bytes(Ending ending, int round_tiles, int row_blocks) {
  return parts_of_stage(ending, round_tiles) * (round_tiles * tile_bytes + row_blocks * side_bytes);
}
static_assert(shared_bytes / stage_bytes(Ending::plain, most_tiles, 4) >= 2);
static_assert(shared_bytes / stage_bytes(Ending::rotated, 4, 4) >= 3);

struct Arguments {
  /// x and plain weights as [64 inputs][row][in / 64]; gated weights with [side] before the last,
  /// rotated ones with [side][head].
  CUtensorMap weights, x;
  Output output;
  std::int32_t round_tiles;  ///< most of a round
  std::int32_t parts;        ///< of a stage
  std::int32_t stage_bytes;
  std::int32_t stage_count;  ///< of all inputs
  std::int32_t stages;       ///< in shared memory
  std::int32_t rounds;       ///< of every block
};

struct SharedState {
  std::uint64_t filled[most_stages], emptied[most_stages];
};
/// What the warps that share tiles have of them: where the stages were, as there is one round then
/// and all of its stages are read.
template <int row_blocks>
using Shares = float[consumer_warps][tile_outputs][8 * row_blocks];
static_assert(sizeof(Shares<4>) <= shared_bytes);

/// From one part, tile or side of the weights in a stage to the next, in bytes.
struct StageLayout {
  int part, tile, side;

  __device__ StageLayout(Ending ending, int round_tiles, int parts)
      : part(ending == Ending::rotated ? tile_bytes : round_tiles * tile_bytes),
        tile(ending == Ending::plain   ? tile_bytes
             : ending == Ending::gated ? side_bytes
                                       : parts * tile_bytes),
        side(ending == Ending::gated ? round_tiles * side_bytes : side_bytes) {}
};

/// The tiles of a block, in rounds, the last of which may have none.
struct Share {
  std::int32_t first, end, round_tiles, rounds;

  __device__ explicit Share(const Arguments& arguments)
      : round_tiles(arguments.round_tiles), rounds(arguments.rounds) {
    const std::int64_t tiles = arguments.output.tiles;
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

/// Of the one thread that copies.
template <int row_blocks>
class Producer {
 public:
  __device__ Producer(const Arguments& arguments, std::uint32_t memory, SharedState& state)
      : arguments_(arguments),
        memory_(memory),
        state_(state),
        share_(arguments),
        tile_parts_(arguments.parts * tile_bytes),
        policy_(hopper::read_once()) {}

  __device__ void run() {
    const std::int32_t all = share_.rounds * arguments_.stage_count;
    const std::int32_t ahead = min(arguments_.stages, all);
    Place weights_at, x_at;
#pragma unroll 1
    for (std::int32_t i = 0; i < ahead; ++i) {
      copy_weights(weights_at);
      weights_at.advance(arguments_);
    }
    wait_for_former_kernels();
#pragma unroll 1
    for (std::int32_t i = 0; i < all; ++i) {
      if (i >= ahead) copy_weights(x_at);
      copy_x(x_at);
      x_at.advance(arguments_);
    }
  }

 private:
  __device__ std::uint32_t place(const Place& at) const {
    return memory_ + static_cast<std::uint32_t>(at.stage * arguments_.stage_bytes);
  }
  __device__ void copy_weights(const Place& at) {
    std::uint64_t* filled = &state_.filled[at.stage];
    const std::int32_t tile = share_.begin_of(at.round);
    const int part = at.number * arguments_.parts;
    hopper::wait(&state_.emptied[at.stage], at.parity ^ 1);
    if (arguments_.output.ending == Ending::rotated) {
      const std::int32_t tiles = share_.tiles_of(at.round);
      const std::int32_t head_tiles = arguments_.output.rope.half_dim / pair_outputs;
      hopper::arrive_expecting(filled,
                               arguments_.stage_bytes - (share_.round_tiles - tiles) * tile_parts_);
      if (at.number == 0) {  // of a round, whose stages follow each other
        round_head_ = tile / head_tiles;
        round_tile_ = tile - round_head_ * head_tiles;
      }
      std::int32_t head = round_head_, i = round_tile_;
      for (std::int32_t t = 0; t < tiles; ++t) {
        hopper::copy_box_once(place(at) + static_cast<std::uint32_t>(t * tile_parts_),
                              arguments_.weights, filled, policy_, 0, i * pair_outputs, 0, head,
                              part);
        if (++i == head_tiles) {
          i = 0;
          ++head;
        }
      }
      return;
    }
    // A round with fewer tiles than others reads on into its neighbour's, which are read anyway.
    hopper::arrive_expecting(filled, arguments_.stage_bytes);
    if (arguments_.output.ending == Ending::gated) {
      hopper::copy_box_once(place(at), arguments_.weights, filled, policy_, 0, tile * pair_outputs,
                            0, part);
    } else {
      hopper::copy_box_once(place(at), arguments_.weights, filled, policy_, 0, tile * tile_outputs,
                            part);
    }
  }
  __device__ void copy_x(const Place& at) const {
    hopper::copy_box(place(at) + static_cast<std::uint32_t>(share_.round_tiles * tile_parts_),
                     arguments_.x, 0, 0, at.number * arguments_.parts, &state_.filled[at.stage]);
  }

  const Arguments& arguments_;
  const std::uint32_t memory_;
  SharedState& state_;
  const Share share_;
  const int tile_parts_;                          ///< bytes of a stage and tile
  std::int32_t round_head_ = 0, round_tile_ = 0;  ///< of rotated ones: where the round begins
  const std::uint64_t policy_;
};

/// A warp's place among those of its block. With more tiles than warps some warps have a second
/// one, consumer_warps further.
struct Division {
  int tile_warps, warp;
  int tile;   ///< of this warp
  int tiles;  ///< of this warp: 0, 1 or 2
  int part;   ///< where warps share a tile: of every stage this one, and each tile_warps-th on

  __device__ explicit Division(int round_tiles)
      : tile_warps(sharing_warps(round_tiles)),
        warp(static_cast<int>(threadIdx.x) / 32),
        tile(warp % tiles_at_once()),
        tiles((tile < round_tiles ? 1 : 0) + (tile + consumer_warps < round_tiles ? 1 : 0)),
        part(warp / tiles_at_once()) {}
  __device__ int tiles_at_once() const { return consumer_warps / tile_warps; }
};

/// A warp that has `tiles` tiles and `own_parts` parts of each stage; `shares`: with other warps,
/// two if it has two parts. Fragments: of
/// weights, element g of both sides of a tile, with lane = 4 g + t; of x, row g; of sums, element g
/// of both sides, rows 2 t and 2 t + 1 of each block of eight.
template <int row_blocks, int tiles, int own_parts, bool shares>
class Consumer {
 public:
  __device__ Consumer(const Arguments& arguments, const Division& division, std::uint8_t* memory,
                      SharedState& state)
      : arguments_(arguments),
        division_(division),
        layout_(arguments.output.ending, arguments.round_tiles, arguments.parts),
        memory_(flatten::shared_address(memory)),
        shares_(*reinterpret_cast<Shares<row_blocks>*>(memory)),
        state_(state),
        share_(arguments),
        lane_(static_cast<int>(threadIdx.x) % 32) {
    // Step s of a part is two vectors of 16 bytes from 2 s on, which the swizzle moves to
    // vector ^ (row % 8): to bits of their own, which 32 s changes.
    // ldmatrix: lanes 8 i to 8 i + 7 name the rows of matrix i.
    const int row = lane_ % 8;
    weights_at_ = static_cast<std::uint32_t>(
        division.part * layout_.part + min(division.tile, share_.round_tiles - 1) * layout_.tile +
        lane_ / 8 % 2 * layout_.side + row * 128 + (lane_ / 16 ^ row) * 16);
    x_at_ = static_cast<std::uint32_t>(
        arguments.parts * share_.round_tiles * tile_bytes + division.part * x_part_bytes +
        (row_blocks > 1 ? lane_ / 16 * side_bytes : 0) + row * 128 + (lane_ / 8 % 2 ^ row) * 16);
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
        if (lane_ == 0) hopper::arrive(&state_.emptied[at.stage]);
        at.advance(arguments_);
      }
      finish(round, share_.tiles_of(round));
    }
  }

 private:
  static constexpr int own_steps = own_parts * part_steps;
  static constexpr int x_part_bytes = row_blocks * side_bytes;
  static constexpr int part_stride = shares && own_parts == 2 ? 2 : 1;
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

  __device__ void multiply(std::int32_t stage) {
    const std::uint32_t base = memory_ + static_cast<std::uint32_t>(stage * arguments_.stage_bytes);
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
      const auto bits = static_cast<std::uint32_t>(step % part_steps * 32);
      const std::uint32_t x =
          ((base + x_at_) ^ bits) +
          static_cast<std::uint32_t>(step / part_steps * part_stride * x_part_bytes);
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
                       : "r"(x + static_cast<std::uint32_t>(block * side_bytes)));
        }
      }
      const std::uint32_t weights =
          ((base + weights_at_) ^ bits) +
          static_cast<std::uint32_t>(step / part_steps * part_stride * layout_.part);
#pragma unroll
      for (int tile = 0; tile < tiles; ++tile) {
        std::uint32_t(&w)[4] = to.weights[i][tile];
        asm volatile(
            "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
            : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
            : "r"(weights + static_cast<std::uint32_t>(tile * consumer_warps * layout_.tile)));
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

  /// Stores the round's sums. What several warps have of a tile is added up first.
  __device__ void finish(std::int32_t round, std::int32_t round_tiles) {
    const std::int32_t begin = share_.begin_of(round);
    if constexpr (!shares) {
#pragma unroll
      for (int tile = 0; tile < tiles; ++tile) {
        const int own = division_.tile + tile * consumer_warps;
        if (own >= round_tiles) continue;
#pragma unroll
        for (int block = 0; block < row_blocks; ++block) {
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            arguments_.output.store(8 * block + lane_ % 4 * 2 + i, begin + own, lane_ / 4,
                                    sums_[tile][block][i], sums_[tile][block][i + 2]);
          }
        }
      }
    } else {
      add_shares(begin, round_tiles);
    }
  }

  __device__ void add_shares(std::int32_t begin, std::int32_t round_tiles) {
    meet();  // all have read the last stage
#pragma unroll
    for (int block = 0; block < row_blocks; ++block) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        shares_[division_.warp][lane_ / 4 + i / 2 * pair_outputs]
               [8 * block + lane_ % 4 * 2 + i % 2] = sums_[0][block][i];
      }
    }
    meet();
    const std::int32_t pairs = round_tiles * pair_outputs;
    for (auto at = static_cast<std::int32_t>(threadIdx.x); at < pairs * arguments_.output.rows;
         at += consumers) {
      const std::int32_t row = at / pairs;
      const std::int32_t tile = at % pairs / pair_outputs;
      const std::int32_t g = at % pair_outputs;
      float low = 0.0f, high = 0.0f;
      for (int share = 0; share < division_.tile_warps; ++share) {
        const auto& of_warp = shares_[share * division_.tiles_at_once() + tile];
        low += of_warp[g][row];
        high += of_warp[g + pair_outputs][row];
      }
      arguments_.output.store(row, begin + tile, g, low, high);
    }
  }
  __device__ static void meet() { hopper::block_barrier_wait(1, consumers); }

  const Arguments& arguments_;
  const Division division_;
  const StageLayout layout_;
  const std::uint32_t memory_;
  Shares<row_blocks>& shares_;
  SharedState& state_;
  const Share share_;
  const int lane_;
  std::uint32_t weights_at_, x_at_;  ///< of this lane, from a stage's begin
  float sums_[tiles == 0 ? 1 : tiles][row_blocks][4];
};

template <int row_blocks>
__device__ void consume(const Arguments& arguments, std::uint8_t* memory, SharedState& state) {
  const Division division(arguments.round_tiles);
  if (division.tile_warps > 1) {
    // All meet in the same code. A warp without a tile does the last one's work for nobody.
    if (arguments.parts > division.tile_warps) {
      Consumer<row_blocks, 1, 2, true>(arguments, division, memory, state).run();
    } else {
      Consumer<row_blocks, 1, 1, true>(arguments, division, memory, state).run();
    }
  } else if (division.tiles == 2) {
    Consumer<row_blocks, 2, 2, false>(arguments, division, memory, state).run();
  } else if (division.tiles == 1) {
    Consumer<row_blocks, 1, 2, false>(arguments, division, memory, state).run();
  } else {
    Consumer<row_blocks, 0, 2, false>(arguments, division, memory, state).run();
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
      hopper::init_barrier(&state.emptied[stage], consumer_warps);
    }
    hopper::publish_barriers();
  } else if (threadIdx.x == consumers) {
    hopper::prefetch_map(arguments.weights);
    hopper::prefetch_map(arguments.x);
  }
  __syncthreads();
  if (threadIdx.x >= consumers) {
    if (threadIdx.x == consumers) {
      Producer<row_blocks>(arguments, flatten::shared_address(memory), state).run();
    }
  } else {
    wait_for_former_kernels();
    consume<row_blocks>(arguments, memory, state);
  }
#endif
}

}  // namespace coppice::cuda::streamed
