// Streamed products of up to 16 rows, by the products of single warps, weights as the left operand:
// with more than eight tiles a warp has two, with four or fewer several warps share a tile, and
// each has a part of every stage to itself.
#pragma once

#include "kernels/cuda/linear/streamed_stages.cuh"

namespace coppice::cuda::streamed {

static_assert(most_tiles == 2 * consumer_warps);

/// Warps that share a tile: the power of two that keeps most of them busy.
__host__ __device__ constexpr int sharing_warps(int round_tiles) {
  int warps = consumer_warps;
  while (warps > 1 && consumer_warps / warps < round_tiles) warps /= 2;
  return warps;
}
/// Counts the parts of a stage: one for each warp of a tile, and two where a warp has a tile to
/// itself.
constexpr int narrow_parts(int round_tiles) {
  const int warps = sharing_warps(round_tiles);
  return warps == 1 ? 2 : warps;
}

/// A warp's place among those of its block. With more tiles than warps some warps have a second
/// one, consumer_warps further.
struct Division {
  int tile_warps;
  int tile;   ///< of this warp
  int tiles;  ///< of this warp: 0, 1 or 2
  int part;   ///< where warps share a tile: of every stage

  __device__ explicit Division(int round_tiles) : tile_warps(sharing_warps(round_tiles)) {
    const int warp = static_cast<int>(threadIdx.x) / 32,
              tiles_at_once = consumer_warps / tile_warps;
    tile = warp % tiles_at_once;
    tiles = (tile < round_tiles ? 1 : 0) + (tile + consumer_warps < round_tiles ? 1 : 0);
    part = warp / tiles_at_once;
  }
};

/// Fragments: of weights, element g of both sides of a tile, with lane = 4 g + t; of x, row g; of
/// sums, element g of both sides, rows 2 t and 2 t + 1 of each block of eight.
template <Ending ending, int row_blocks>
class NarrowConsumer {
 public:
  __device__ NarrowConsumer(const Arguments& arguments, std::uint8_t* memory, SharedState& state)
      : arguments_(arguments),
        division_(arguments.round_tiles),
        memory_(flatten::shared_address(memory)),
        sums_(reinterpret_cast<float*>(memory + arguments.sums_at)),
        stride_(sums_stride(arguments.round_tiles * tile_outputs)),
        state_(state),
        share_(arguments),
        lane_(static_cast<int>(threadIdx.x) % 32) {
    // Step s of a part is two vectors of 16 bytes from 2 s on, which the swizzle moves to
    // vector ^ (row % 8): to bits of their own, which 32 s changes.
    // ldmatrix: lanes 8 i to 8 i + 7 name the rows of matrix i.
    const int row = lane_ % 8;
    weights_at_ = static_cast<std::uint32_t>(
        (division_.part * share_.round_tiles + min(division_.tile, share_.round_tiles - 1)) *
            tile_bytes +
        lane_ / 8 % 2 * side_bytes + row * part_row_bytes + (lane_ / 16 ^ row) * 16);
    x_at_ = static_cast<std::uint32_t>(arguments.parts * share_.round_tiles * tile_bytes +
                                       division_.part * x_part_bytes +
                                       (row_blocks > 1 ? lane_ / 16 * side_bytes : 0) +
                                       row * part_row_bytes + (lane_ / 8 % 2 ^ row) * 16);
  }

  __device__ void run() {
    Place at;
#pragma unroll 1
    for (std::int32_t round = 0; round < arguments_.rounds; ++round) {
      if (division_.tile_warps > 1) {
        multiply_round<1, 1>(at);
      } else if (division_.tiles == 2) {
        multiply_round<2, 2>(at);
      } else {
        multiply_round<1, 2>(at);  // a warp without a tile does another's work for nobody
      }
      meet();  // here, where all warps run the same code
      const int share_floats = 8 * row_blocks * stride_;
      end_rows<ending, consumers, 1>(
          arguments_.output, 0, arguments_.output.rows, share_.begin_of(round),
          share_.tiles_of(round), [&](std::int32_t row, std::int32_t output) {
            Four sum = load<vector_width>(sums_ + row * stride_ + output);
#pragma unroll 4
            for (int share = 1; share < division_.tile_warps; ++share) {
              add(sum, load<vector_width>(sums_ + share * share_floats + row * stride_ + output));
            }
            return sum;
          });
      if (round + 1 < arguments_.rounds) meet();  // all have read the sums
    }
  }

 private:
  static constexpr int x_part_bytes = row_blocks * side_bytes;

  /// A round of a warp with `tiles` tiles and `own_parts` parts of each stage, up to its sums in
  /// shared memory.
  template <int tiles, int own_parts>
  __device__ void multiply_round(Place& at) {
    float sums[tiles][row_blocks][4] = {};
#pragma unroll 1
    for (std::int32_t i = 0; i < arguments_.stage_count; ++i) {
      hopper::wait(&state_.filled[at.stage], at.parity);
      multiply<tiles, own_parts>(at.stage, sums);
      __syncwarp();
      if (lane_ == 0) hopper::arrive(&state_.emptied[at.stage]);
      at.advance(arguments_.stages);
    }
#pragma unroll
    for (int tile = 0; tile < tiles; ++tile) {
      const int own = division_.tile + tile * consumer_warps;
      if (own >= share_.round_tiles) continue;
      float* to = sums_ + (division_.part * 8 * row_blocks + lane_ % 4 * 2) * stride_ +
                  own * tile_outputs + lane_ / 4;
#pragma unroll
      for (int block = 0; block < row_blocks; ++block) {
        store_sums(to + 8 * block * stride_, stride_, sums[tile][block]);
      }
    }
  }

  template <int tiles, int own_parts>
  struct Walk {
    static constexpr int own_steps = own_parts * part_steps;
    static constexpr int step_registers = 4 * tiles + 2 * row_blocks;
    /// Steps whose fragments are loaded together, while those before are multiplied.
    static constexpr int group_steps() {
      int most = own_steps;
      while (most > 1 && most * step_registers > 24) most /= 2;
      return most;
    }
    struct Fragments {
      std::uint32_t weights[group_steps()][tiles][4];
      std::uint32_t x[group_steps()][row_blocks][2];
    };
  };

  template <int tiles, int own_parts>
  __device__ void multiply(std::int32_t stage, float (&sums)[tiles][row_blocks][4]) const {
    using W = Walk<tiles, own_parts>;
    const std::uint32_t base = memory_ + static_cast<std::uint32_t>(stage * arguments_.stage_bytes);
    constexpr int groups = W::own_steps / W::group_steps();
    typename W::Fragments fragments[2];
    load_group<W, tiles>(base, 0, fragments[0]);
#pragma unroll
    for (int group = 0; group < groups; ++group) {
      if (group + 1 < groups) load_group<W, tiles>(base, group + 1, fragments[(group + 1) % 2]);
      const typename W::Fragments& now = fragments[group % 2];
#pragma unroll
      for (int step = 0; step < W::group_steps(); ++step) {
#pragma unroll
        for (int tile = 0; tile < tiles; ++tile) {
#pragma unroll
          for (int block = 0; block < row_blocks; ++block) {
            multiply_add(sums[tile][block], now.weights[step][tile], now.x[step][block]);
          }
        }
      }
    }
  }

  template <typename W, int tiles>
  __device__ void load_group(std::uint32_t base, int group, typename W::Fragments& to) const {
#pragma unroll
    for (int i = 0; i < W::group_steps(); ++i) {
      const int step = group * W::group_steps() + i;
      const auto bits = static_cast<std::uint32_t>(step % part_steps * 32);
      const std::uint32_t x =
          ((base + x_at_) ^ bits) + static_cast<std::uint32_t>(step / part_steps * x_part_bytes);
      if constexpr (row_blocks == 1) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                     : "=r"(to.x[i][0][0]), "=r"(to.x[i][0][1])
                     : "r"(x));
      } else {
        static_assert(row_blocks == 2);
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(to.x[i][0][0]), "=r"(to.x[i][0][1]), "=r"(to.x[i][1][0]),
                       "=r"(to.x[i][1][1])
                     : "r"(x));
      }
      const std::uint32_t weights =
          ((base + weights_at_) ^ bits) +
          static_cast<std::uint32_t>(step / part_steps * share_.round_tiles * tile_bytes);
#pragma unroll
      for (int tile = 0; tile < tiles; ++tile) {
        std::uint32_t(&w)[4] = to.weights[i][tile];
        asm volatile(
            "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
            : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
            : "r"(weights + static_cast<std::uint32_t>(tile * consumer_warps * tile_bytes)));
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

  const Arguments& arguments_;
  const Division division_;
  const std::uint32_t memory_;
  float* sums_;       ///< [sharing warp][row][stride_] in shared memory
  const int stride_;  ///< floats of a row
  SharedState& state_;
  const Share<1> share_;
  const int lane_;
  std::uint32_t weights_at_, x_at_;  ///< of this lane, from a stage's begin
};

template <Ending ending, int row_blocks>
__global__ void __launch_bounds__(threads, 1)
    stream_narrow([[maybe_unused]] const __grid_constant__ Arguments arguments) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) std::uint8_t memory[];
  __shared__ SharedState state;
  prepare_stages(arguments, state);
  if (threadIdx.x >= consumers) {
    Producer<ending, 1>(arguments, flatten::shared_address(memory), state).run([](std::int32_t) {});
  } else {
    wait_for_former_kernels();
    NarrowConsumer<ending, row_blocks>(arguments, memory, state).run();
  }
#endif
}

}  // namespace coppice::cuda::streamed
