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
// one thread adds 1 again; the counter begins anew at 0 with the last of them, for the next launch:
// nobody looks at it any more, as whoever reads has seen it full. Where a block shares two units,
// their counters differ. Each element is joined by one thread, in the order of the ranges.
//
// A partial result is in half precision, every row divided by its largest element, so that rounding
// adds at most 2^-12 of that element. A row with an infinite element becomes NaN as a whole.
#pragma once

#include <cuda_fp16.h>

#include <cfloat>

#include "kernels/cuda/attention/hopper_tiles.cuh"

namespace coppice::cuda::hopper {

/// A contributor's partial result is written. A counter that has seen all contributors write and
/// read is 0 again.
__device__ inline void add_written(unsigned* counter, unsigned contributors) {
  asm volatile("red.release.gpu.global.inc.u32 [%0], %1;"
               :
               : "l"(counter), "r"(2 * contributors - 1)
               : "memory");
}
/// It has read its share of all.
__device__ inline void add_read(unsigned* counter, unsigned contributors) {
  asm volatile("red.relaxed.gpu.global.inc.u32 [%0], %1;"
               :
               : "l"(counter), "r"(2 * contributors - 1)
               : "memory");
}
__device__ inline unsigned load_tickets(const unsigned* counter) {
  unsigned value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(counter) : "memory");
  return value;
}

/// A row of a partial result: its weights' sum, and what its elements are to be multiplied by.
struct PartialRow {
  float lse;  ///< to base 2; -infinity where the row sees nothing
  float scale;
};

template <typename V, typename Consumer>
class Results {
 public:
  __device__ Results(const Arguments& arguments, const RangePlan& plan)
      : arguments_(arguments), plan_(plan) {}

  /// Takes a piece's result over from both consumers.
  __device__ void take(const RangePiece& piece, std::int32_t gang, std::int32_t member,
                       const Consumer& consumer) {
    if (piece.contributors == 1) {
      if (consumer.holds_result()) store(piece, consumer);
      return;
    }
    if (consumer.holds_result()) {
      keep(piece, plan_.partial(gang, member, piece.tile_begin == 0), consumer);
    }
    block_barrier_wait(both_barrier, consumer_threads);
    if (threadIdx.x == warpgroup_threads) {
      add_written(tickets_of(piece, member), static_cast<unsigned>(piece.contributors));
    }
  }

  /// Joins this block's share of a unit that several blocks have computed.
  template <typename Trace>
  __device__ void join(const RangePiece& piece, std::int32_t gang, std::int32_t member,
                       const Trace& trace) {
    const auto contributors = static_cast<unsigned>(piece.contributors);
    unsigned* tickets = tickets_of(piece, member);
    if (threadIdx.x == warpgroup_threads) {
      while (load_tickets(tickets) < contributors) {
      }
    }
    block_barrier_wait(both_barrier, consumer_threads);
    trace.mark(Phase::all_there);

    // Few contributors leave a thread more vectors: several at once, to have more loads in flight.
    constexpr int most_vectors =
        4 * holders < consumer_threads ? 1 : 4 * holders / consumer_threads;
    const std::int32_t share = gang - piece.first_gang;
    if (piece.contributors <= 2) {
      join_share<most_vectors, 2>(piece, member, share);
    } else if (piece.contributors <= 4) {
      join_share<(most_vectors + 1) / 2, 4>(piece, member, share);
    } else {
      join_share<1, 8>(piece, member, share);
    }

    block_barrier_wait(both_barrier, consumer_threads);
    if (threadIdx.x == warpgroup_threads) add_read(tickets, contributors);
  }

 private:
  /// Threads of a block that hold results.
  static constexpr int holders = V::tile_rows * 2;
  /// Vectors of eight neighbours of a row each; see VectorPlace.
  static constexpr int vectors_per_thread = V::head_dim / 16;

  /// Where a thread's vector lies in its row tile; `lane`: the thread's.
  struct VectorPlace {
    int row_offset;  ///< 0: of the thread's first row; 8: of its second
    int column;
  };
  __device__ static VectorPlace vector_place(int vector, int lane) {
    return {vector % 2 * 8, (vector / 2 * 4 + lane % 4) * 8};
  }
  /// Gathers the vectors of a result. Products leave a row's eight neighbours with four threads,
  /// two each: these exchange what they have of four such blocks, and each has one as a whole.
  /// visit(vector, elements) gets four words of two elements each, packed by pack(low, high, half);
  /// half: 0 or 1, which of the thread's rows. To be called by whole warps.
  template <typename Pack, typename Visit>
  __device__ static void for_each_vector(const Consumer& consumer, Pack pack, Visit visit) {
    const bool odd = threadIdx.x % 2 != 0, upper = threadIdx.x % 4 >= 2;
#pragma unroll
    for (int vector = 0; vector < vectors_per_thread; ++vector) {
      const int half = vector % 2;
      const float* out = consumer.out + vector / 2 * 16 + 2 * half;
      std::uint32_t words[4];
#pragma unroll
      for (int block = 0; block < 4; ++block) {
        words[block] = pack(out[4 * block], out[4 * block + 1], half);
      }
      swap_where(odd, words[0], words[1], 1);
      swap_where(odd, words[2], words[3], 1);
      swap_where(upper, words[0], words[2], 2);
      swap_where(upper, words[1], words[3], 2);
      visit(vector, uint4{words[0], words[1], words[2], words[3]});
    }
  }
  /// A step of the exchange: the neighbour's `low` becomes this thread's `high`, and the other way
  /// round; `upper`: this thread is the one that has the higher block in the end.
  __device__ static void swap_where(bool upper, std::uint32_t& low, std::uint32_t& high,
                                    int distance) {
    const std::uint32_t other = __shfl_xor_sync(all_lanes, upper ? low : high, distance);
    (upper ? low : high) = other;
  }

  /// That of the block with the unit's first KV tile: of the units that begin in a range, at most
  /// one is shared.
  __device__ unsigned* tickets_of(const RangePiece& piece, std::int32_t member) const {
    return arguments_.tickets + piece.first_gang * plan_.gang + member;
  }

  __device__ void store(const RangePiece& piece, const Consumer& consumer) {
    const std::int32_t head_dim = head_dim_of<V>(arguments_);
    float inverse[2];
    __nv_bfloat16* rows[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float sum = consumer.sum[half];
      inverse[half] = sum == 0.0f ? 0.0f : 1.0f / sum;
      const std::int32_t packed_row = piece.rows.begin + consumer.first_row() + 8 * half;
      rows[half] = packed_row < piece.rows.end ? out_row(piece.kv_head, packed_row) : nullptr;
    }
    for_each_vector(
        consumer,
        [&](float low, float high, int half) {
          return flatten::pack(low * inverse[half], high * inverse[half]);
        },
        [&](int vector, const uint4& elements) {
          const int column = vector_place(vector, static_cast<int>(threadIdx.x)).column;
          if (rows[vector % 2] == nullptr || (V::window_or_cap && column >= head_dim)) return;
          *reinterpret_cast<uint4*>(rows[vector % 2] + column) = elements;
        });
  }

  __device__ void keep(const RangePiece& piece, std::int32_t partial, const Consumer& consumer) {
    float inverse[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float largest = 0.0f;
#pragma unroll
      for (int n = 0; n < V::head_dim / 8; ++n) {
        largest = fmaxf(largest, fmaxf(fabsf(consumer.out[4 * n + 2 * half]),
                                       fabsf(consumer.out[4 * n + 2 * half + 1])));
      }
      largest = fmaxf(largest, __shfl_xor_sync(all_lanes, largest, 1));
      largest = fmaxf(largest, __shfl_xor_sync(all_lanes, largest, 2));
      inverse[half] = largest < FLT_MIN ? 0.0f : 1.0f / largest;
      if (threadIdx.x % 4 == 0) {
        const float sum = consumer.sum[half];
        partial_rows(partial)[consumer.first_row() + 8 * half] =
            sum == 0.0f ? PartialRow{-INFINITY, 0.0f}
                        : PartialRow{consumer.maximum[half] + __log2f(sum), largest / sum};
      }
    }
    uint4* vectors = partial_vectors(partial) + (threadIdx.x - warpgroup_threads);
    const bool real = consumer.first_row() < piece.rows.end - piece.rows.begin;
    for_each_vector(
        consumer,
        [&](float low, float high, int half) {
          return pack_halves(low * inverse[half], high * inverse[half]);
        },
        [&](int vector, const uint4& elements) {
          if (real) vectors[vector * holders] = elements;
        });
  }

  /// Vectors go to contributors in turn, one for each of their threads at a time. A thread joins
  /// those of one thread that held them: `vectors` at once, of `parts_at_once` partial results.
  template <int vectors, int parts_at_once>
  __device__ void join_share(const RangePiece& piece, std::int32_t member, std::int32_t share) {
    constexpr int threads_per_holder = consumer_threads / holders;
    const int thread = static_cast<int>(threadIdx.x) - warpgroup_threads;
    const int holder = thread % holders;
    const int holder_row = holder / 32 * 16 + holder % 32 / 4;
    const std::int32_t rows = piece.rows.end - piece.rows.begin;
    const std::int32_t head_dim = head_dim_of<V>(arguments_);
    if (holder_row >= rows) return;
    const int apart = piece.contributors * threads_per_holder;
#pragma unroll 1
    for (int first = share * threads_per_holder + thread / holders; first < vectors_per_thread;
         first += vectors * apart) {
      int at[vectors];
      int row[vectors];
      float top[vectors];
      float weight_sum[vectors] = {};
      float sum[vectors][8] = {};
#pragma unroll
      for (int k = 0; k < vectors; ++k) {
        at[k] = min(first + k * apart, vectors_per_thread - 1);
        row[k] = holder_row + vector_place(at[k], holder).row_offset;
        top[k] = -INFINITY;
      }
#pragma unroll 1
      for (std::int32_t base = 0; base < piece.contributors; base += parts_at_once) {
        PartialRow part_rows[parts_at_once][vectors];
        uint4 parts[parts_at_once][vectors];
#pragma unroll
        for (int i = 0; i < parts_at_once; ++i) {
#pragma unroll
          for (int k = 0; k < vectors; ++k) {
            part_rows[i][k] = PartialRow{-INFINITY, 0.0f};
            parts[i][k] = uint4{};
          }
          if (base + i >= piece.contributors) continue;
          const std::int32_t partial =
              plan_.partial(piece.first_gang + base + i, member, base + i == 0);
#pragma unroll
          for (int k = 0; k < vectors; ++k) {
            part_rows[i][k] = partial_rows(partial)[row[k]];
            parts[i][k] = partial_vectors(partial)[at[k] * holders + holder];
          }
        }
#pragma unroll
        for (int k = 0; k < vectors; ++k) {
          float next_top = top[k];
#pragma unroll
          for (int i = 0; i < parts_at_once; ++i) next_top = fmaxf(next_top, part_rows[i][k].lse);
          // A row that has seen nothing so far subtracts 0, not infinity from infinity.
          const float subtracted = next_top == -INFINITY ? 0.0f : next_top;
          const float kept = flatten::power_of_two(top[k] - subtracted);
          top[k] = next_top;
          weight_sum[k] *= kept;
#pragma unroll
          for (float& element : sum[k]) element *= kept;
#pragma unroll
          for (int i = 0; i < parts_at_once; ++i) {
            const float weight = flatten::power_of_two(part_rows[i][k].lse - subtracted);
            weight_sum[k] += weight;
            const float factor = weight * part_rows[i][k].scale;
            const std::uint32_t words[4] = {parts[i][k].x, parts[i][k].y, parts[i][k].z,
                                            parts[i][k].w};
#pragma unroll
            for (int e = 0; e < 4; ++e) {
              const float2 both = unpack_halves(words[e]);
              sum[k][2 * e] += factor * both.x;
              sum[k][2 * e + 1] += factor * both.y;
            }
          }
        }
      }
#pragma unroll
      for (int k = 0; k < vectors; ++k) {
        const int column = vector_place(at[k], holder).column;
        if (first + k * apart >= vectors_per_thread || row[k] >= rows ||
            (V::window_or_cap && column >= head_dim)) {
          continue;
        }
        const float inverse = weight_sum[k] == 0.0f ? 0.0f : 1.0f / weight_sum[k];
        uint4 elements;
        elements.x = flatten::pack(sum[k][0] * inverse, sum[k][1] * inverse);
        elements.y = flatten::pack(sum[k][2] * inverse, sum[k][3] * inverse);
        elements.z = flatten::pack(sum[k][4] * inverse, sum[k][5] * inverse);
        elements.w = flatten::pack(sum[k][6] * inverse, sum[k][7] * inverse);
        *reinterpret_cast<uint4*>(out_row(piece.kv_head, piece.rows.begin + row[k]) + column) =
            elements;
      }
    }
  }

  __device__ static std::uint32_t pack_halves(float low, float high) {
    const __half2 both = __floats2half2_rn(low, high);
    return *reinterpret_cast<const std::uint32_t*>(&both);
  }
  __device__ static float2 unpack_halves(std::uint32_t both) {
    return __half22float2(*reinterpret_cast<const __half2*>(&both));
  }
  __device__ uint4* partial_vectors(std::int32_t partial) const {
    return reinterpret_cast<uint4*>(arguments_.partial_out) +
           partial * (vectors_per_thread * holders);
  }
  __device__ PartialRow* partial_rows(std::int32_t partial) const {
    return reinterpret_cast<PartialRow*>(arguments_.partial_lse) + partial * V::tile_rows;
  }
  __device__ __nv_bfloat16* out_row(std::int32_t kv_head, std::int32_t packed_row) const {
    const auto [query, head] = query_head(arguments_, kv_head, packed_row);
    return arguments_.out +
           (std::int64_t{query} * plan_.kv_heads * plan_.group + head) * head_dim_of<V>(arguments_);
  }

  const Arguments& arguments_;
  const RangePlan& plan_;
};

}  // namespace coppice::cuda::hopper
