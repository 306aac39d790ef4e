// Streamed products of 17 to 96 rows, by the products of two warpgroups, each of every other 64
// outputs, weights as the left operand; of the last 64 of an odd number, each has half of the
// inputs. Where few tiles would leave a block more of x than of the weights to read, two blocks of
// a cluster share the inputs, and of their sums each ends half the rows.
#pragma once

#include "kernels/cuda/attention/hopper_ptx.cuh"
#include "kernels/cuda/linear/streamed_stages.cuh"

namespace coppice::cuda::streamed {

inline constexpr int warpgroups = consumers / hopper::warpgroup_threads;
inline constexpr int product_outputs = 64;  ///< of one instruction
inline constexpr int product_tiles = product_outputs / tile_outputs;
inline constexpr int step_bytes = part_row_bytes / part_steps;  ///< of a row
static_assert(most_tiles == 2 * warpgroups * product_tiles);
/// Behind the stages, for a part's last instruction reads on behind its tiles.
inline constexpr int slack_bytes = product_tiles * tile_bytes;

__host__ __device__ constexpr int products_of(int round_tiles) {
  return (round_tiles + product_tiles - 1) / product_tiles;
}

__device__ inline void meet_cluster() {
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;"
      :
      :
      : "memory");
}
/// If what was written before need not be seen after.
__device__ inline void meet_readers() {
  asm volatile(
      "barrier.cluster.arrive.relaxed.aligned;\n"
      "barrier.cluster.wait.aligned;"
      :
      :
      : "memory");
}
__device__ inline Four load_from_cluster(int rank, std::uint32_t shared) {
  Four values;
  asm volatile(
      "{\n"
      ".reg .u32 address;\n"
      "mapa.shared::cluster.u32 address, %4, %5;\n"
      "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [address];\n"
      "}"
      : "=f"(values.at[0]), "=f"(values.at[1]), "=f"(values.at[2]), "=f"(values.at[3])
      : "r"(shared), "r"(rank)
      : "memory");
  return values;
}

/// A thread holds the sums of `held` instructions. Sums lie where the stages were, of which the
/// next round's are copied when this one has ended.
template <Ending ending, int rows, int held, int split>
class WideConsumer {
 public:
  __device__ WideConsumer(const Arguments& arguments, std::uint8_t* memory, SharedState& state)
      : arguments_(arguments),
        memory_(flatten::shared_address(memory)),
        sums_(reinterpret_cast<float*>(memory)),
        state_(state),
        share_(arguments),
        lane_(static_cast<int>(threadIdx.x) % 32),
        warp_(static_cast<int>(threadIdx.x) / 32 % 4),
        group_(static_cast<int>(threadIdx.x) / hopper::warpgroup_threads),
        products_(products_of(share_.round_tiles)),
        shared_product_(products_ % warpgroups != 0 ? products_ - 1 : products_),
        stride_(sums_stride(products_ * product_outputs)) {}

  __device__ void run() {
    Place at;
#pragma unroll 1
    for (std::int32_t round = 0; round < arguments_.rounds; ++round) {
      multiply_round(at);
      if constexpr (split > 1) {
        meet_cluster();
      } else {
        meet();
      }
      constexpr int own_rows = rows / split;
      const std::int32_t first_row = share_.rank * own_rows;
      end_rows<ending, consumers, ending == Ending::gated ? 1 : 3>(
          arguments_.output, first_row, min(arguments_.output.rows - first_row, own_rows),
          share_.begin_of(round), share_.tiles_of(round),
          [&](std::int32_t row, std::int32_t output) { return sum_at(row, output); });
      if constexpr (split > 1) meet_readers();  // before the other block's memory may go
      if (round + 1 < arguments_.rounds) {
        hopper::make_visible_to_products();
        end_round();
      }
    }
  }

  /// Met by the warps that copy, too.
  __device__ static void end_round() { hopper::block_barrier_wait(2, threads); }

 private:
  __device__ void multiply_round(Place& at) {
    float sums[held][rows / 2];
#pragma unroll
    for (int h = 0; h < held; ++h) {
#pragma unroll
      for (float& sum : sums[h]) sum = 0.0f;
      hopper::pin(sums[h]);
    }
#pragma unroll 1
    for (std::int32_t i = 0; i < arguments_.stage_count; ++i) {
      hopper::wait(&state_.filled[at.stage], at.parity);
      hopper::begin_products();
      multiply(at.stage, sums);
      hopper::commit_products();
      // Not while the next stage's run: the memory waits longer for a free stage than products do.
      hopper::wait_for_products<0>();
      if (lane_ == 0) hopper::arrive(&state_.emptied[at.stage]);
      at.advance(arguments_.stages);
    }
#pragma unroll
    for (int h = 0; h < held; ++h) hopper::pin(sums[h]);
    meet();  // all have read the last stage
#pragma unroll
    for (int h = 0; h < held; ++h) {
      const int product = product_of(h), row = lane_ % 4 * 2;
      const bool second = product == shared_product_ && group_ > 0;
      const int stride = second ? shared_stride : stride_;
      float* to = second ? second_sums(row) : sums_ + row * stride_ + product * product_outputs;
      to += warp_ * tile_outputs + lane_ / 4;
#pragma unroll
      for (int block = 0; block < rows / 8; ++block) {
        store_sums(to + 8 * block * stride, stride, &sums[h][4 * block]);
      }
    }
  }

  static constexpr int shared_stride = sums_stride(product_outputs);
  __device__ int product_of(int h) const { return min(group_ + warpgroups * h, shared_product_); }
  /// The second warpgroup's sums of the shared product.
  __device__ float* second_sums(std::int32_t row) const {
    return sums_ + rows * stride_ + row * shared_stride;
  }

  __device__ void multiply(std::int32_t stage, float (&sums)[held][rows / 2]) const {
    const std::uint32_t base = memory_ + static_cast<std::uint32_t>(stage * arguments_.stage_bytes);
    const int all = arguments_.parts * part_steps / together;
#pragma unroll
    for (int h = 0; h < held; ++h) {
      const bool shared = h == held - 1 && shared_product_ < products_;
      const int count = shared ? all / warpgroups : all;
#pragma unroll 1
      for (int i = 0; i < count; ++i) {
        const int first = (shared ? warpgroups * i + group_ : i) * together;
        multiply_steps(base, first / part_steps, first % part_steps, product_of(h), sums[h]);
      }
    }
  }

  static constexpr int together = part_steps / warpgroups;  ///< steps of a part
  __device__ void multiply_steps(std::uint32_t base, int part, int first, int product,
                                 float (&sums)[rows / 2]) const {
    const int part_bytes = share_.round_tiles * tile_bytes, begin = first * step_bytes;
    const std::uint32_t weights = hopper::matrix_descriptor(
        base + static_cast<std::uint32_t>(part * part_bytes + product * product_tiles * tile_bytes +
                                          begin),
        0);
    const std::uint32_t x = hopper::matrix_descriptor(
        base + static_cast<std::uint32_t>(arguments_.parts * part_bytes +
                                          part * rows * part_row_bytes + begin),
        0);
#pragma unroll
    for (int step = 0; step < together; ++step) {
      hopper::multiply_add_shared(sums, hopper::moved_descriptor(weights, step * step_bytes),
                                  hopper::moved_descriptor(x, step * step_bytes), true);
    }
  }

  __device__ Four sum_at(std::int32_t row, std::int32_t output) const {
    Four sum{};
    add_all(sum, sums_ + row * stride_ + output);
    const std::int32_t shared = output - shared_product_ * product_outputs;
    if (shared >= 0) add_all(sum, second_sums(row) + shared);
    return sum;
  }
  /// What all blocks that share the inputs have there.
  __device__ void add_all(Four& sum, const float* place) const {
    if constexpr (split == 1) {
      add(sum, load<vector_width>(place));
    } else {
#pragma unroll
      for (int rank = 0; rank < split; ++rank) {
        add(sum, load_from_cluster(rank, flatten::shared_address(place)));
      }
    }
  }

  const Arguments& arguments_;
  const std::uint32_t memory_;
  float* sums_;  ///< [rows][stride_] in shared memory
  SharedState& state_;
  const Share<split> share_;
  const int lane_, warp_, group_;
  const int products_;        ///< of a round
  const int shared_product_;  ///< products_ if all are one warpgroup's
  const int stride_;          ///< floats of a row
};

template <Ending ending, int rows, int held, int split>
__global__ void __launch_bounds__(threads, 1)
    stream_wide([[maybe_unused]] const __grid_constant__ Arguments arguments) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using Consumer = WideConsumer<ending, rows, held, split>;
  extern __shared__ __align__(1024) std::uint8_t memory[];
  __shared__ SharedState state;
  prepare_stages(arguments, state);
  if (threadIdx.x >= consumers) {
    Producer<ending, split>(arguments, flatten::shared_address(memory), state)
        .run([&](std::int32_t round) {
          if constexpr (split > 1) {
            meet_cluster();
            meet_readers();
          }
          if (round + 1 < arguments.rounds) Consumer::end_round();
        });
  } else {
    wait_for_former_kernels();
    Consumer(arguments, memory, state).run();
  }
#endif
}

}  // namespace coppice::cuda::streamed
