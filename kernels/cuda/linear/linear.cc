#include "kernels/cuda/linear/linear.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "kernels/cuda/error.h"
#include "kernels/cuda/linear/library_products.h"
#include "kernels/cuda/linear/packed_linear.h"
#include "kernels/cuda/linear/plain_linear.h"
#include "kernels/cuda/linear/product_proposals.h"
#include "kernels/cuda/linear/streamed_linear.h"
#include "kernels/cuda/pass/rope_tensors.h"
#include "kernels/narrowed.h"

namespace coppice::cuda {
namespace {

/// Neighbouring outputs of one layout.
struct PackedPart {
  PackedLayout layout;
  std::int64_t first = 0, outputs = 0;
  DeviceBuffer blocks;
};

class PackedWeights final : public LinearWeights {
 public:
  std::int64_t in_features() const override { return in; }
  std::int64_t out_features() const override { return out; }
  std::size_t bytes() const override {
    std::size_t all = values.bytes() + bias.bytes();
    for (const PackedPart& part : parts) all += part.blocks.bytes();
    return all;
  }
  std::vector<DeviceBuffer*> memory() override {
    std::vector<DeviceBuffer*> all;
    if (!is_packed()) all.push_back(&values);
    for (PackedPart& part : parts) all.push_back(&part.blocks);
    return all;
  }
  EmbeddingTable table() const override {
    if (is_packed()) return {};
    return {values.data(), WeightFormat::bf16};
  }
  bool has_non_finite() const override { return non_finite; }
  const float* bias_or_null(std::int64_t first = 0) const {
    return bias.bytes() > 0 ? bias.as<float>() + first : nullptr;
  }
  bool is_packed() const { return !parts.empty(); }

  const void* owner = nullptr;
  std::int64_t in = 0, out = 0;
  std::int32_t max_rows = 0;
  bool non_finite = false;
  DeviceBuffer values;            ///< [out, in] bf16, or none
  std::vector<PackedPart> parts;  ///< or these
  DeviceBuffer bias;              ///< [out] f32, or none
};

// Where the layers of the 7B and 8B shapes are cheap for their rows on an H200: more rows cost more
// at once, as they need another tile of the library's.
constexpr std::array<std::int32_t, 28> rungs = {1,   2,   4,   8,   16,  32,  48,  64,  72,  80,
                                                96,  112, 128, 144, 160, 176, 192, 216, 256, 264,
                                                280, 304, 320, 352, 384, 448, 512, 640};

}  // namespace

std::int32_t padded_row_count(std::int32_t rows) {
  if (rows <= rungs.back()) return *std::lower_bound(rungs.begin(), rungs.end(), rows);
  const std::int32_t step = rows <= 1280 ? 128 : 256;
  return (rows + step - 1) / step * step;
}

std::int32_t smaller_row_count(std::int32_t rows) {
  const std::int32_t padded = padded_row_count(rows);
  if (padded > rungs.back()) {
    // From 1280 on steps are twice as long.
    return std::max(rungs.back(), padded - (padded <= 1280 ? 128 : 256));
  }
  const auto at = std::lower_bound(rungs.begin(), rungs.end(), padded);
  return at == rungs.begin() ? 0 : *(at - 1);
}

struct LinearEngine::Impl {
  Impl(WeightUpload& uploader, Allocate allocator, bool streams, ProductTiming* timing,
       ProductProposals* proposals)
      : upload(uploader),
        allocate(std::move(allocator)),
        library(allocate, timing == nullptr ? at_once : *timing,
                proposals == nullptr ? own_proposals : *proposals) {
    if (streams) streaming_blocks = prepare_streamed_linear();
  }

  bool streams(const PackedWeights& packed, std::int32_t rows) const {
    return streaming_blocks > 0 && !packed.is_packed() &&
           can_stream(packed.in, packed.out, padded_row_count(rows));
  }
  StreamedProduct streamed(const PackedWeights& packed, const void* x, std::int32_t rows) const {
    return {x,         packed.values.data(), packed.bias_or_null(), padded_row_count(rows),
            packed.in, streaming_blocks};
  }

  /// Describes the product with one of its parts.
  PackedProduct product(const PackedWeights& packed, const PackedPart& part, const void* x,
                        std::int32_t rows) const {
    return {x,
            part.blocks.data(),
            part.layout,
            packed.bias_or_null(part.first),
            padded_row_count(rows),
            packed.in,
            streaming_blocks};
  }
  /// Whether blocks stay packed.
  bool packs(std::span<const LinearPart> parts, std::int64_t in) const {
    return streaming_blocks > 0 && in % packed_part == 0 &&
           std::all_of(parts.begin(), parts.end(), [&](const LinearPart& part) {
             return packed_layout(part.format) &&
                    (parts.size() == 1 || part.out_features % packed_side == 0);
           });
  }
  void upload_packed(std::span<const LinearPart> parts, PackedWeights& packed) {
    std::atomic<bool> non_finite{false};
    std::int64_t first = 0;
    while (!parts.empty()) {
      const PackedLayout layout = packed_layout(parts.front().format).value();
      std::size_t count = 0;
      std::int64_t outputs = 0;
      while (count < parts.size() && packed_layout(parts[count].format) == layout) {
        outputs += parts[count++].out_features;
      }
      const auto bytes = static_cast<std::size_t>(packed_bytes(layout, outputs, packed.in));
      PackedPart part{layout, first, outputs, allocate(bytes, "weights")};
      auto* to = part.blocks.as<std::byte>();
      for (const LinearPart& one : parts.first(count)) {
        const auto size =
            static_cast<std::size_t>(packed_bytes(layout, one.out_features, packed.in));
        upload.upload(to, packed_bytes_of(one, packed.in, non_finite), size);
        to += size;
      }
      packed.parts.push_back(std::move(part));
      first += outputs;
      parts = parts.subspan(count);
    }
    packed.non_finite = non_finite;
  }
  void upload_plain(std::span<const LinearPart> parts, PackedWeights& packed) {
    const std::int64_t count = packed.out * packed.in;
    packed.values = allocate(static_cast<std::size_t>(count) * size_of(DType::bf16), "weights");
    auto* to = packed.values.as<std::uint16_t>();
    for (const LinearPart& part : parts) {
      const std::optional<DType> plain = dtype_of(part.format);
      upload.upload_bf16(to, plain ? part.data : narrowed_to_bf16(part.data, part.format),
                         plain.value_or(DType::bf16), part.out_features * packed.in);
      to += part.out_features * packed.in;
    }
    packed.non_finite = upload.has_non_finite(packed.values.data(), count);
  }

  const PackedWeights& own(const LinearWeights& weights, std::int32_t rows) const {
    const auto& packed = static_cast<const PackedWeights&>(weights);
    if (packed.owner != this || rows < 1 || rows > padded_row_count(packed.max_rows)) {
      throw_failure(cat("linear layer of ", packed.out, " x ", packed.in, ": ", rows,
                        " rows, packed for 1 to ", packed.max_rows,
                        packed.owner == this ? "" : " on another device"));
    }
    return packed;
  }

  ProductShape shape_of(const PackedWeights& packed, std::int32_t rows, bool accumulate) const {
    return {packed.in, packed.out, padded_row_count(rows), accumulate, packed.bias.bytes() > 0};
  }

  WeightUpload& upload;
  const Allocate allocate;
  ProductTiming at_once;
  ProductProposals own_proposals;
  LibraryProducts library;
  std::int32_t streaming_blocks = 0;  ///< 0: no product is streamed
};

LinearEngine::LinearEngine(WeightUpload& upload, Allocate allocate, bool streams,
                           ProductTiming* timing, ProductProposals* proposals)
    : impl_(std::make_unique<Impl>(upload, std::move(allocate), streams, timing, proposals)) {}

LinearEngine::~LinearEngine() = default;

std::unique_ptr<LinearWeights> LinearEngine::pack(std::span<const LinearPart> parts,
                                                  std::int64_t in_features,
                                                  std::span<const float> bias,
                                                  std::int32_t max_rows) {
  std::int64_t out_features = 0;
  for (const LinearPart& part : parts) out_features += part.out_features;
  constexpr std::int64_t most_features = std::numeric_limits<std::int32_t>::max();
  if (in_features < 1 || out_features < 1 || max_rows < 1 || in_features > most_features ||
      out_features > most_features) {
    throw_failure(cat("linear layer of ", out_features, " x ", in_features, " for ", max_rows,
                      " rows: all must be at least 1 and at most ", most_features));
  }
  if (!bias.empty() && std::ssize(bias) != out_features) {
    throw_failure(
        cat("linear layer of ", out_features, " outputs has ", bias.size(), " bias values"));
  }
  auto packed = std::make_unique<PackedWeights>();
  packed->owner = impl_.get();
  packed->in = in_features;
  packed->out = out_features;
  packed->max_rows = max_rows;
  if (impl_->packs(parts, in_features)) {
    impl_->upload_packed(parts, *packed);
  } else {
    impl_->upload_plain(parts, *packed);
  }
  if (!bias.empty()) {
    packed->bias = impl_->allocate(bias.size_bytes(), "biases");
    impl_->upload.upload(packed->bias.data(), bias.data(), bias.size_bytes());
  }
  return packed;
}

void LinearEngine::run(const LinearWeights& weights, const void* x, std::int32_t rows, float* out,
                       bool accumulate, cudaStream_t stream) {
  const PackedWeights& packed = impl_->own(weights, rows);
  const std::int32_t padded = padded_row_count(rows);
  for (const PackedPart& part : packed.parts) {
    packed_linear(impl_->product(packed, part, x, rows), part.outputs, out + part.first, packed.out,
                  accumulate, stream);
  }
  if (packed.is_packed()) return;
  if (impl_->streams(packed, rows)) {
    return streamed_linear(impl_->streamed(packed, x, rows), packed.out, out, accumulate, stream);
  }
  if (impl_->library.run(impl_->shape_of(packed, rows, accumulate),
                         {x, packed.values.data(), packed.bias_or_null(), out}, stream)) {
    return;
  }
  plain_linear(x, packed.values.data(), padded, packed.in, packed.out, out, accumulate, stream);
  if (packed.bias.bytes() > 0) add_bias(packed.bias.as<float>(), padded, packed.out, out, stream);
}

bool LinearEngine::run_qkv(const LinearWeights& weights, const void* x, std::int32_t rows,
                           const RopeTensors& qkv, cudaStream_t stream) {
  const PackedWeights& packed = impl_->own(weights, rows);
  if (!can_rotate(qkv)) return false;
  if (packed.parts.size() == 1) {
    packed_qkv(impl_->product(packed, packed.parts.front(), x, rows), qkv, stream);
    return true;
  }
  if (!impl_->streams(packed, rows)) return false;
  streamed_qkv(impl_->streamed(packed, x, rows), qkv, stream);
  return true;
}

bool LinearEngine::run_gated(const LinearWeights& weights, Activation activation, const void* x,
                             std::int32_t rows, void* out, cudaStream_t stream) {
  const PackedWeights& packed = impl_->own(weights, rows);
  if (packed.parts.size() == 1 && packed.out / 2 % packed_side == 0) {
    packed_gated_linear(impl_->product(packed, packed.parts.front(), x, rows), activation,
                        packed.out / 2, out, stream);
    return true;
  }
  if (!impl_->streams(packed, rows)) return false;
  streamed_gated_linear(impl_->streamed(packed, x, rows), activation, packed.out / 2, out, stream);
  return true;
}

bool LinearEngine::streams() const { return impl_->streaming_blocks > 0; }

std::string LinearEngine::implementation(const LinearWeights& weights, std::int32_t rows,
                                         bool accumulate) {
  const PackedWeights& packed = impl_->own(weights, rows);
  if (packed.is_packed()) return "packed";
  if (impl_->streams(packed, rows)) return "streamed";
  const std::string code = impl_->library.implementation(impl_->shape_of(packed, rows, accumulate),
                                                         packed.bias_or_null());
  return code.empty() ? "plain" : code;
}

}  // namespace coppice::cuda
