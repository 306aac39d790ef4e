#include <bit>
#include <climits>

#include "base/error.h"
#include "kernels/cuda/attention/hopper_attention.h"
#include "kernels/cuda/attention/hopper_launch.h"
#include "kernels/cuda/attention/tensor_map.h"
#include "kernels/cuda/error.h"

namespace coppice::cuda {
namespace hopper {
namespace {

/// Whether a layer runs by kernels with a window or a soft cap.
bool is_window_or_cap(const AttentionShape& shape, const AttentionRule& rule) {
  return has_rule(rule) || !has_plain_ranges(shape.head_dim);
}

/// A pool of `rows` rows of head_dim by boxes of page_box rows, as Variant has them in shared
/// memory: whole, or, `by_panels`, of 64 columns.
CUtensorMap map_boxes(const void* pool, std::int64_t rows, std::int32_t head_dim, bool by_panels) {
  constexpr const char* what = "a KV pool";
  const auto columns = static_cast<std::uint64_t>(head_dim);
  if (by_panels) {
    const std::uint64_t sizes[] = {columns, static_cast<std::uint64_t>(rows)};
    const std::uint64_t strides[] = {columns * 2};
    const std::uint32_t box[] = {64, page_box};
    return make_tensor_map(pool, sizes, strides, box, what);
  }
  const std::uint64_t panels = columns / 64;
  const std::uint64_t sizes[] = {64, 8, panels, static_cast<std::uint64_t>(rows) / 8};
  const std::uint64_t strides[] = {columns * 2, 128, columns * 16};
  const std::uint32_t box[] = {64, 8, static_cast<std::uint32_t>(panels), page_box / 8};
  return make_tensor_map(pool, sizes, strides, box, what);
}

}  // namespace
}  // namespace hopper

std::int32_t prepare_hopper_attention(std::int32_t head_dim) {
  int device = 0;
  int major = 0;
  int minor = 0;
  int multiprocessors = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
        "compute capability");
  check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device),
        "compute capability");
  check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device),
        "multiprocessor count");
  int cooperative = 0;
  check(cudaDeviceGetAttribute(&cooperative, cudaDevAttrCooperativeLaunch, device),
        "cooperative launches");
  if (major != 9 || minor != 0 || cooperative == 0) return 0;
  // Small models have passes so short that shares of them are not worth cutting.
  if (head_dim < 64) return 0;
  bool present = true;
  if (head_dim == 64) present = hopper::prepare_head<64>();
  if (head_dim == 128) present = hopper::prepare_head<128>();
  switch (range_head_dim(head_dim)) {
    case 64:
      present = hopper::prepare_window_or_cap<64>() && present;
      break;
    case 128:
      present = hopper::prepare_window_or_cap<128>() && present;
      break;
    default:
      present = hopper::prepare_window_or_cap<256>() && present;
  }
  return present ? multiprocessors : 0;
}

namespace hopper {

Arguments make_arguments(const PassView& pass, const void* q, std::int64_t q_stride,
                         const AttentionShape& shape, const AttentionRule& rule,
                         const KvLayout& layout, const void* keys, const void* values,
                         std::int32_t layer, void* out, const AttentionScratch& scratch) {
  Arguments arguments{};
  static_cast<Operands&>(arguments) =
      make_operands(q, q_stride, shape, rule, layout, keys, values, layer, out, scratch);
  const std::int64_t layer_rows = std::int64_t{layout.pages} * layout.kv_heads * layout.page_size;
  const std::int64_t pool_rows = layer_rows * layout.layers;
  arguments.has_boxes = layout.page_size % page_box == 0 && pool_rows <= INT_MAX;
  if (arguments.has_boxes) {
    const bool window_or_cap = is_window_or_cap(shape, rule);
    arguments.key_boxes = map_boxes(keys, pool_rows, layout.head_dim, window_or_cap);
    arguments.value_boxes = map_boxes(values, pool_rows, layout.head_dim, window_or_cap);
    arguments.first_pool_row = static_cast<std::int32_t>(layer_rows * layer);
  }
  arguments.pass = pass;
  arguments.page_shift = std::has_single_bit(static_cast<unsigned>(layout.page_size))
                             ? std::countr_zero(static_cast<unsigned>(layout.page_size))
                             : -1;
  arguments.group_inverse = static_cast<std::uint32_t>(
      ((std::uint64_t{1} << 32) + static_cast<std::uint64_t>(arguments.group) - 1) /
      static_cast<std::uint64_t>(arguments.group));
  arguments.tickets = scratch.tickets;
  arguments.head_dim = layout.head_dim;
  return arguments;
}

}  // namespace hopper

void hopper_attention(const AttentionLaunch& launch, const PassView& pass, const void* q,
                      std::int64_t q_stride, const AttentionShape& shape, const AttentionRule& rule,
                      const KvLayout& layout, const void* keys, const void* values,
                      std::int32_t layer, void* out, const AttentionScratch& scratch,
                      std::int32_t blocks, cudaStream_t stream) {
  const hopper::Arguments arguments = hopper::make_arguments(pass, q, q_stride, shape, rule, layout,
                                                             keys, values, layer, out, scratch);
  const bool window_or_cap = hopper::is_window_or_cap(shape, rule);
  switch (range_head_dim(shape.head_dim)) {
    case 64:
      return (window_or_cap ? hopper::launch_window_or_cap<64>
                            : hopper::launch_head<64>)(launch, arguments, blocks, stream);
    case 128:
      return (window_or_cap ? hopper::launch_window_or_cap<128>
                            : hopper::launch_head<128>)(launch, arguments, blocks, stream);
    default:
      return hopper::launch_window_or_cap<256>(launch, arguments, blocks, stream);
  }
}

}  // namespace coppice::cuda
