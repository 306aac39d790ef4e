#include "kernels/cpu/linear.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

#include "base/error.h"
#include "kernels/cpu/instruction_set.h"
#include "kernels/cpu/linear_onednn.h"
#include "kernels/cpu/quantised_rows.h"
#include "kernels/cpu/weight_blocks.h"
#include "kernels/cpu/workers.h"

namespace coppice::cpu {
namespace {

/// Under the address sanitizer: reports the first byte of these that must not be touched. Products
/// are not instrumented there, but for their own tests, as little as oneDNN's.
void expect_addressable([[maybe_unused]] const void* begin, [[maybe_unused]] std::int64_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  const void* const bad =
      __asan_region_is_poisoned(const_cast<void*>(begin), static_cast<std::size_t>(bytes));
  if (bad != nullptr) static_cast<void>(*static_cast<const volatile char*>(bad));
#endif
}

constexpr std::array<std::int32_t, 24> small_buckets = {
    1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128};
constexpr std::int32_t bucket_step = 32;

/// Weights that are worth a thread of their own.
constexpr std::int64_t thread_grain = 1 << 15;
/// Parts of a product per thread, so that a thread that comes late does less.
constexpr std::int64_t parts_per_thread = 4;

/// Neighbouring parts of one format.
struct PackedPart {
  WeightBlocks blocks;
  std::int64_t first = 0;  ///< of its outputs
};

class PackedWeights final : public LinearWeights {
 public:
  std::int64_t in_features() const override { return parts.front().blocks.in; }
  std::int64_t out_features() const override {
    return parts.back().first + parts.back().blocks.out;
  }
  std::size_t bytes() const override {
    std::size_t bytes = 0;
    for (const PackedPart& part : parts) bytes += part.blocks.data.bytes();
    return bytes;
  }
  std::vector<DeviceBuffer*> memory() override {
    std::vector<DeviceBuffer*> all;
    for (PackedPart& part : parts) all.push_back(&part.blocks.data);
    return all;
  }
  EmbeddingTable table() const override {
    const WeightFormat format = parts.front().blocks.format;
    const bool has_rows = format == WeightFormat::f32 || !dtype_of(format);
    if (parts.size() > 1 || !has_rows) return {};
    return {nullptr, format, this};
  }
  bool has_non_finite() const override {
    return std::any_of(parts.begin(), parts.end(),
                       [](const PackedPart& part) { return part.blocks.non_finite; });
  }

  const void* owner = nullptr;
  std::vector<PackedPart> parts;
  std::vector<float> bias;
  std::int32_t max_rows = 0;
  std::int32_t most_own_rows = 0;  ///< more rows run in oneDNN, of weights in one part
};

}  // namespace

std::int32_t padded_row_count(std::int32_t rows) {
  if (rows <= small_buckets.back()) {
    return *std::lower_bound(small_buckets.begin(), small_buckets.end(), rows);
  }
  return (rows + bucket_step - 1) / bucket_step * bucket_step;
}

struct LinearEngine::Impl {
  DType compute;
  bool integer_products;
  Workers& workers;
  std::unique_ptr<OneDnnProducts> onednn;  ///< of bf16
  QuantisedRows quantised;

  /// What parts of a layer are packed as.
  WeightFormat kept(std::span<const LinearPart> parts) const {
    if (onednn) return WeightFormat::bf16;
    const WeightFormat format = common_format(parts);
    return format == WeightFormat::f16 && !has_native_f16() ? WeightFormat::f32 : format;
  }

  /// Parts whose formats agree, or can be widened to one, become one.
  std::vector<PackedPart> pack(std::span<const LinearPart> parts, std::int64_t in) {
    std::vector<PackedPart> packed;
    std::int64_t first = 0;
    while (!parts.empty()) {
      std::size_t count = parts.size();
      const auto is_plain = [](const LinearPart& part) {
        return dtype_of(part.format).has_value();
      };
      if (!onednn && !std::all_of(parts.begin(), parts.end(), is_plain)) {
        count = 1;
        while (count < parts.size() && parts[count].format == parts.front().format) ++count;
      }
      const std::span<const LinearPart> some = parts.first(count);
      packed.push_back({pack_blocks(some, in, kept(some), workers), first});
      first += packed.back().blocks.out;
      parts = parts.subspan(count);
    }
    return packed;
  }

  void run_own(const LinearProduct& product) {
    const std::int64_t blocks = product.weights.count();
    const int team = workers.worth(product.weights.in * product.weights.out, thread_grain);
    const std::int64_t parts =
        std::min<std::int64_t>(blocks, team == 1 ? 1 : team * parts_per_thread);
    const bool few = product.weights.format == WeightFormat::fp8 && product.rows <= most_fp8_rows;
    const auto multiply = compute == DType::bf16         ? multiply_bf16
                          : product.quantised != nullptr ? multiply_quantised
                          : few                          ? multiply_fp8
                                                         : multiply_f32;
    workers.run(parts, team, [&](std::int64_t part, int) {
      const Share share = share_of(blocks, part, parts);
      multiply(product, share.begin, share.end);
    });
  }
};

LinearEngine::LinearEngine(DType compute, bool integer_products, Workers& workers) {
  instruction_set();  // before oneDNN or Highway is used
  impl_ = std::make_unique<Impl>(compute, integer_products, workers);
  if (compute == DType::bf16) impl_->onednn = std::make_unique<OneDnnProducts>(workers);
}

LinearEngine::~LinearEngine() = default;

std::unique_ptr<LinearWeights> LinearEngine::pack(std::span<const LinearPart> parts,
                                                  std::int64_t in_features,
                                                  std::span<const float> bias,
                                                  std::int32_t max_rows) {
  std::int64_t out_features = 0;
  for (const LinearPart& part : parts) out_features += part.out_features;
  if (in_features < 1 || out_features < 1 || max_rows < 1) {
    throw_failure(cat("linear layer of ", out_features, " x ", in_features, " for ", max_rows,
                      " rows: all must be at least 1"));
  }
  if (!bias.empty() && std::ssize(bias) != out_features) {
    throw_failure(
        cat("linear layer of ", out_features, " outputs has ", bias.size(), " bias values"));
  }
  auto packed = std::make_unique<PackedWeights>();
  packed->owner = impl_.get();
  packed->bias.assign(bias.begin(), bias.end());
  packed->max_rows = max_rows;
  packed->parts = impl_->pack(parts, in_features);
  packed->most_own_rows =
      impl_->onednn ? impl_->onednn->most_streamed_rows(packed->parts.front().blocks, !bias.empty())
                    : max_rows;
  return packed;
}

void LinearEngine::run(const LinearWeights& weights, const void* x, std::int32_t rows, float* out,
                       bool accumulate) {
  const auto& packed = static_cast<const PackedWeights&>(weights);
  if (packed.owner != impl_.get() || rows < 1 || rows > packed.max_rows) {
    throw_failure(cat("linear layer of ", packed.out_features(), " x ", packed.in_features(), ": ",
                      rows, " rows, packed for 1 to ", packed.max_rows,
                      packed.owner == impl_.get() ? "" : " on another device"));
  }
  const std::int64_t in = packed.in_features(), out_features = packed.out_features();
  expect_addressable(x, rows * in * static_cast<std::int64_t>(size_of(impl_->compute)));
  expect_addressable(out, rows * out_features * static_cast<std::int64_t>(sizeof(float)));
  const auto takes_integers = [&](const PackedPart& part) {
    return impl_->integer_products && has_integers(part.blocks.format);
  };
  if (std::any_of(packed.parts.begin(), packed.parts.end(), takes_integers)) {
    impl_->quantised.assign(static_cast<const float*>(x), rows, in, impl_->workers);
  }
  for (const PackedPart& part : packed.parts) {
    const LinearProduct product{part.blocks,
                                packed.bias.empty() ? nullptr : packed.bias.data() + part.first,
                                x,
                                rows,
                                out + part.first,
                                out_features,
                                accumulate,
                                takes_integers(part) ? &impl_->quantised : nullptr};
    if (rows <= packed.most_own_rows) {
      impl_->run_own(product);
    } else {
      impl_->onednn->run(product);
    }
  }
}

void LinearEngine::embed_row(const LinearWeights& weights, std::int64_t row, float scale,
                             float* out) const {
  const auto& packed = static_cast<const PackedWeights&>(weights);
  unpack_row(packed.parts.front().blocks, row, out);
  for (std::int64_t i = 0; i < packed.in_features(); ++i) out[i] *= scale;
}

std::string LinearEngine::implementation(const LinearWeights& weights, std::int32_t rows) {
  const auto& packed = static_cast<const PackedWeights&>(weights);
  if (rows <= packed.most_own_rows) return "own";
  return impl_->onednn->implementation(packed.parts.front().blocks, !packed.bias.empty(), rows);
}

}  // namespace coppice::cpu
