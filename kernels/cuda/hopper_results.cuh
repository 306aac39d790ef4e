// Results of the Hopper attention: stored where a block has computed a whole unit, else kept as a
// partial result and joined by the blocks that share the unit.
//
// Hand-over between blocks. The consumers of a block write a partial result, meet at a barrier, and
// one thread then adds 1 to the unit's ticket counter; being a release at the scope of the device,
// that covers what the barrier ordered before it. A block looks for others' partial results only
// after it has run all of its pieces, so that waiting holds nobody up: whoever is waited for never
// waits itself before it has added its last ticket. All blocks of the launch are resident at a time
// (cooperative launch), so they get there. One thread sees the counter full (an acquire), the
// consumers meet at a barrier, and so every thread's reads come after all of the unit's partial
// results were written. When a block has read its share, which its consumers' next barrier tells,
// one thread adds 1 to the counter's upper half; the last one to do so sets the counter to 0, for
// the next launch: by then everyone has seen it full. Where a block shares two units, their
// counters differ. Each element is joined by one thread, in the order of the ranges.
//
// A partial result is [tile_rows][head_dim].
#pragma once

#include <type_traits>

#include "kernels/cuda/hopper_consumer.cuh"

namespace coppice::cuda::hopper {

inline constexpr unsigned ticket_read = 1u << 16;

__device__ inline void add_ticket(unsigned* counter) {
  asm volatile("red.release.gpu.global.add.u32 [%0], 1;" : : "l"(counter) : "memory");
}
__device__ inline unsigned load_tickets(const unsigned* counter) {
  unsigned value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(counter) : "memory");
  return value;
}

template <typename V>
class Results {
 public:
  using Vector = std::conditional_t<V::head_dim == 128, float4, float2>;
  static constexpr int width = V::head_dim / 32;

  __device__ Results(const Arguments& arguments, const RangePlan& plan)
      : arguments_(arguments), plan_(plan) {}

  /// Takes a piece's result over from both consumers.
  __device__ void take(const RangePiece& piece, std::int32_t gang, std::int32_t member,
                       const Consumer<V>& consumer) {
    const bool whole = piece.contributors == 1;
    if (consumer.holds_result()) {
      const int column = static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = consumer.first_row() + 8 * half;
        const float sum = consumer.sum[half];
        const float inverse = sum == 0.0f ? 0.0f : 1.0f / sum;
        if (whole) {
          const std::int32_t packed_row = piece.row_tile * V::tile_rows + row;
          if (packed_row >= plan_.packed_rows()) continue;
          __nv_bfloat16* out = out_row(piece.kv_head, packed_row) + column;
#pragma unroll
          for (int n = 0; n < V::head_dim / 8; ++n) {
            *reinterpret_cast<std::uint32_t*>(out + 8 * n) =
                flatten::pack(consumer.out[4 * n + 2 * half] * inverse,
                              consumer.out[4 * n + 2 * half + 1] * inverse);
          }
        } else {
          const std::int64_t at =
              std::int64_t{plan_.partial(gang, member, piece.tile_begin == 0)} * V::tile_rows + row;
          if (column == 0) {
            arguments_.partial_lse[at] =
                sum == 0.0f ? -INFINITY : consumer.maximum[half] + __log2f(sum);
          }
          float* out = arguments_.partial_out + at * V::head_dim + column;
#pragma unroll
          for (int n = 0; n < V::head_dim / 8; ++n) {
            *reinterpret_cast<float2*>(out + 8 * n) =
                float2{consumer.out[4 * n + 2 * half] * inverse,
                       consumer.out[4 * n + 2 * half + 1] * inverse};
          }
        }
      }
    }

    if (whole) return;
    block_barrier_wait(both_barrier, consumer_threads);
    if (threadIdx.x == warpgroup_threads) add_ticket(tickets_of(piece, member));
  }

  /// Joins this block's share of a unit that several blocks have computed.
  __device__ void join(const RangePiece& piece, std::int32_t gang, std::int32_t member) {
    const auto contributors = static_cast<unsigned>(piece.contributors);
    unsigned* tickets = tickets_of(piece, member);
    if (threadIdx.x == warpgroup_threads) {
      while ((load_tickets(tickets) & (ticket_read - 1)) < contributors) {
      }
    }
    block_barrier_wait(both_barrier, consumer_threads);

    const std::int32_t share = gang - piece.first_gang;
    // As many threads per row as there are, and about 16 loads in flight for each.
    const std::int32_t rows = V::tile_rows / piece.contributors;
    if (rows > 32) {
      join_share<8, 2>(piece, member, share);
    } else if (rows > 16) {
      join_share<4, 4>(piece, member, share);
    } else if (rows > 8) {
      join_share<2, 6>(piece, member, share);
    } else {
      join_share<1, 9>(piece, member, share);
    }

    block_barrier_wait(both_barrier, consumer_threads);
    if (threadIdx.x == warpgroup_threads) {
      const unsigned before = atomicAdd(tickets, ticket_read);
      if (before / ticket_read == contributors - 1) *tickets = 0;
    }
  }

 private:
  /// That of the block with the unit's first KV tile: of the units that begin in a range, at most
  /// one is shared.
  __device__ unsigned* tickets_of(const RangePiece& piece, std::int32_t member) const {
    return arguments_.tickets + piece.first_gang * plan_.gang + member;
  }

  /// Rows go to contributors in turn. A thread has `vectors` vectors of a row, and reads those of
  /// `parts_at_once` partial results before it adds them.
  template <int vectors, int parts_at_once>
  __device__ void join_share(const RangePiece& piece, std::int32_t member, std::int32_t share) {
    constexpr int row_threads = 32 / vectors;
    const int thread = static_cast<int>(threadIdx.x) - warpgroup_threads;
    const std::int32_t rows =
        min(V::tile_rows, plan_.packed_rows() - piece.row_tile * V::tile_rows);
    // In rows: where the unit's partial results lie, and how far they are apart.
    const std::int32_t begin = plan_.partial(piece.first_gang, member, false) * V::tile_rows;
    const std::int32_t apart = 2 * plan_.gang * V::tile_rows;
#pragma unroll 1
    for (std::int32_t row = share + thread / row_threads * piece.contributors; row < rows;
         row += consumer_threads / row_threads * piece.contributors) {
      const float* lses = arguments_.partial_lse + begin + row;
      const Vector* parts = reinterpret_cast<const Vector*>(arguments_.partial_out) +
                            (begin + row) * 32 + thread % row_threads;
      float top = -INFINITY;
      float weight_sum = 0.0f;
      float sum[vectors][width] = {};
#pragma unroll 1
      for (std::int32_t base = 0; base < piece.contributors; base += parts_at_once) {
        float lse[parts_at_once];
        Vector part[parts_at_once][vectors];
#pragma unroll
        for (int i = 0; i < parts_at_once; ++i) {
          lse[i] = -INFINITY;
#pragma unroll
          for (int k = 0; k < vectors; ++k) part[i][k] = Vector{};
          if (base + i < piece.contributors) {
            const std::int32_t at = base + i == 0 ? V::tile_rows : (base + i) * apart;
            lse[i] = lses[at];
#pragma unroll
            for (int k = 0; k < vectors; ++k) part[i][k] = parts[at * 32 + k * row_threads];
          }
        }
        float next_top = top;
#pragma unroll
        for (int i = 0; i < parts_at_once; ++i) next_top = fmaxf(next_top, lse[i]);
        // A row that has seen nothing so far subtracts 0, not infinity from infinity.
        const float subtracted = next_top == -INFINITY ? 0.0f : next_top;
        const float kept = flatten::power_of_two(top - subtracted);
        top = next_top;
        weight_sum *= kept;
#pragma unroll
        for (int k = 0; k < vectors; ++k) {
#pragma unroll
          for (int e = 0; e < width; ++e) sum[k][e] *= kept;
        }
#pragma unroll
        for (int i = 0; i < parts_at_once; ++i) {
          const float weight = flatten::power_of_two(lse[i] - subtracted);
          weight_sum += weight;
#pragma unroll
          for (int k = 0; k < vectors; ++k) {
            sum[k][0] += weight * part[i][k].x;
            sum[k][1] += weight * part[i][k].y;
            if constexpr (width == 4) {
              sum[k][2] += weight * part[i][k].z;
              sum[k][3] += weight * part[i][k].w;
            }
          }
        }
      }
      const float inverse = weight_sum == 0.0f ? 0.0f : 1.0f / weight_sum;
      __nv_bfloat16* out = out_row(piece.kv_head, piece.row_tile * V::tile_rows + row) +
                           width * (thread % row_threads);
#pragma unroll
      for (int k = 0; k < vectors; ++k) {
        auto* place = reinterpret_cast<std::uint32_t*>(out + width * k * row_threads);
        if constexpr (width == 4) {
          *reinterpret_cast<uint2*>(place) =
              uint2{flatten::pack(sum[k][0] * inverse, sum[k][1] * inverse),
                    flatten::pack(sum[k][2] * inverse, sum[k][3] * inverse)};
        } else {
          *place = flatten::pack(sum[k][0] * inverse, sum[k][1] * inverse);
        }
      }
    }
  }
  __device__ __nv_bfloat16* out_row(std::int32_t kv_head, std::int32_t packed_row) const {
    const auto [query, head] = query_head(arguments_, kv_head, packed_row);
    return arguments_.out +
           (std::int64_t{query} * plan_.kv_heads * plan_.group + head) * V::head_dim;
  }

  const Arguments& arguments_;
  const RangePlan& plan_;
};

}  // namespace coppice::cuda::hopper
