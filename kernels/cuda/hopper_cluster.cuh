// Results of units that a cluster of blocks shares: each sends its partial result, by parcels of
// eight rows, to the blocks that join them, which wait for the bytes that they expect. So nothing
// passes through device memory but the result.
//
// Parcel p of a row tile is joined by block p % blocks of the cluster, where that of contributor i
// lies at place i * ceil(parcels / blocks) + p / blocks. Blocks send as soon as all of the cluster
// have begun, into memory that serves for nothing else; a block ends when it has received all, and
// what it sent concerns those that received it.
#pragma once

#include "kernels/cuda/hopper_output.cuh"

namespace coppice::cuda::hopper {

template <typename V>
class ClusterResults : Output<V> {
 public:
  /// `rank`: of this block in its cluster. A block has one piece.
  __device__ ClusterResults(const Arguments& arguments, const RangePlan& plan,
                            SharedTiles<V>& tiles, SharedState<V>& state)
      : Output<V>(arguments, plan), tiles_(tiles), state_(state), rank_(block_in_cluster()) {}

  /// Sends a piece's result, or stores it.
  __device__ void take(const RangePiece& piece, std::int32_t, std::int32_t,
                       const Consumer<V>& consumer) {
    if (piece.contributors == 1) return this->store(piece, consumer);
    if (threadIdx.x == warpgroup_threads) {
      arrive_expecting(&state_.parcels_filled, expected_bytes(piece));
    }
    cluster_wait();
    if (!consumer.holds_result()) return;
    const std::int32_t rows = rows_of(piece);
    const auto lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int parcel = (consumer.first_row() - lane / 4) / parcel_rows + half;
      if (parcel * parcel_rows >= rows) break;
      float factor;
      const PartialRow sums = this->scaled_row(consumer, half, factor);
      const int block = parcel % piece.contributors;
      const int place = place_of(rank_, parcel, piece.contributors);
      const std::uint32_t barrier = address_in_block(shared_address(&state_.parcels_filled), block);
      const auto& to = tiles_.parcels[place];
#pragma unroll
      for (int i = 0; i < vectors; ++i) {
        const float* out = consumer.out + 16 * i + 2 * half;
        send(address_in_block(shared_address(&to.vectors[i][lane]), block),
             uint4{pack_halves(out[0] * factor, out[1] * factor),
                   pack_halves(out[4] * factor, out[5] * factor),
                   pack_halves(out[8] * factor, out[9] * factor),
                   pack_halves(out[12] * factor, out[13] * factor)},
             barrier);
      }
      if (lane % 4 == 0) {
        send(address_in_block(shared_address(&tiles_.parcel_sums[place][lane / 4]), block),
             float2{sums.lse, sums.scale}, barrier);
      }
    }
  }

  /// Joins this block's parcels.
  template <typename Trace>
  __device__ void join(const RangePiece& piece, std::int32_t, std::int32_t, const Trace& trace) {
    wait_for_cluster(&state_.parcels_filled, 0);
    trace.mark(Phase::all_there);
    const std::int32_t rows = rows_of(piece);
    const int items = parcels_per_block(piece.contributors) * vectors * 32;
#pragma unroll 1
    for (int item = static_cast<int>(threadIdx.x) - warpgroup_threads; item < items;
         item += consumer_threads) {
      const int parcel = item / (vectors * 32) * piece.contributors + rank_;
      const int row = parcel * parcel_rows + item % 32 / 4;
      if (row < rows) join_vector(piece, parcel, row, item / 32 % vectors, item % 32);
    }
  }

 private:
  using Output<V>::arguments_;
  using Output<V>::plan_;
  using Output<V>::pack_halves;
  using Output<V>::unpack_halves;
  static constexpr int vectors = V::head_dim / 32;
  static constexpr int parcels = V::tile_rows / parcel_rows;

  __device__ static int block_in_cluster() {
    std::uint32_t rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return static_cast<int>(rank);
  }
  __device__ static int parcels_per_block(int blocks) { return (parcels + blocks - 1) / blocks; }
  __device__ static int place_of(int contributor, int parcel, int blocks) {
    return contributor * parcels_per_block(blocks) + parcel / blocks;
  }
  __device__ std::int32_t rows_of(const RangePiece& piece) const {
    return min(V::tile_rows, plan_.packed_rows() - piece.row_tile * V::tile_rows);
  }
  __device__ int expected_bytes(const RangePiece& piece) const {
    const int real = (rows_of(piece) + parcel_rows - 1) / parcel_rows;
    const int own = (real - rank_ + piece.contributors - 1) / piece.contributors;
    constexpr int parcel_bytes = sizeof(Parcel<V>) + parcel_rows * sizeof(PartialRow);
    return max(own, 0) * piece.contributors * parcel_bytes;
  }

  __device__ void join_vector(const RangePiece& piece, int parcel, int row, int vector, int lane) {
    const int first = place_of(0, parcel, piece.contributors);
    const int apart = parcels_per_block(piece.contributors);
    float top = -INFINITY;
    for (int i = 0; i < piece.contributors; ++i) {
      top = fmaxf(top, tiles_.parcel_sums[first + i * apart][lane / 4].lse);
    }
    // A row that sees nothing subtracts 0, not infinity from infinity.
    const float subtracted = top == -INFINITY ? 0.0f : top;
    float weight_sum = 0.0f;
    float sum[8] = {};
    for (int i = 0; i < piece.contributors; ++i) {
      const PartialRow sums = tiles_.parcel_sums[first + i * apart][lane / 4];
      const uint4 part = tiles_.parcels[first + i * apart].vectors[vector][lane];
      const float weight = flatten::power_of_two(sums.lse - subtracted);
      weight_sum += weight;
      const float factor = weight * sums.scale;
      const std::uint32_t words[4] = {part.x, part.y, part.z, part.w};
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const float2 both = unpack_halves(words[k]);
        sum[2 * k] += factor * both.x;
        sum[2 * k + 1] += factor * both.y;
      }
    }
    const float inverse = weight_sum == 0.0f ? 0.0f : 1.0f / weight_sum;
    __nv_bfloat16* out = this->out_row(piece.kv_head, piece.row_tile * V::tile_rows + row) +
                         32 * vector + lane % 4 * 2;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      *reinterpret_cast<std::uint32_t*>(out + 8 * k) =
          flatten::pack(sum[2 * k] * inverse, sum[2 * k + 1] * inverse);
    }
  }

  SharedTiles<V>& tiles_;
  SharedState<V>& state_;
  const int rank_;
};

}  // namespace coppice::cuda::hopper
