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

class PackedWeights final : public LinearWeights {
 public:
  std::int64_t in_features() const override { return blocks.in; }
  std::int64_t out_features() const override { return blocks.out; }
  std::size_t bytes() const override { return blocks.data.bytes(); }
  bool has_non_finite() const override { return blocks.non_finite; }

  const void* owner = nullptr;
  WeightBlocks blocks;
  std::vector<float> bias;
  std::int32_t max_rows = 0;
  std::int32_t most_own_rows = 0;  ///< more rows run in oneDNN
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
  Workers& workers;
  std::unique_ptr<OneDnnProducts> onednn;  ///< of bf16

  void run_own(const LinearProduct& product) {
    const std::int64_t blocks = product.weights.count();
    const int team = workers.worth(product.weights.in * product.weights.out, thread_grain);
    const std::int64_t parts =
        std::min<std::int64_t>(blocks, team == 1 ? 1 : team * parts_per_thread);
    const auto multiply = compute == DType::bf16 ? multiply_bf16 : multiply_f32;
    workers.run(parts, team, [&](std::int64_t part, int) {
      const Share share = share_of(blocks, part, parts);
      multiply(product, share.begin, share.end);
    });
  }
};

LinearEngine::LinearEngine(DType compute, Workers& workers) {
  instruction_set();  // before oneDNN or Highway is used
  impl_ = std::make_unique<Impl>(compute, workers, nullptr);
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
  DType type = impl_->onednn ? DType::bf16 : common_type(parts);
  if (type == DType::f16 && !has_native_f16()) type = DType::f32;
  packed->blocks = pack_blocks(parts, in_features, type, impl_->workers);
  packed->most_own_rows =
      impl_->onednn ? impl_->onednn->most_streamed_rows(packed->blocks, !bias.empty()) : max_rows;
  return packed;
}

void LinearEngine::run(const LinearWeights& weights, const void* x, std::int32_t rows, float* out,
                       bool accumulate) {
  const auto& packed = static_cast<const PackedWeights&>(weights);
  if (packed.owner != impl_.get() || rows < 1 || rows > packed.max_rows) {
    throw_failure(cat("linear layer of ", packed.blocks.out, " x ", packed.blocks.in, ": ", rows,
                      " rows, packed for 1 to ", packed.max_rows,
                      packed.owner == impl_.get() ? "" : " on another device"));
  }
  const LinearProduct product{
      packed.blocks, packed.bias.empty() ? nullptr : packed.bias.data(), x, rows, out, accumulate};
  const std::int64_t inputs = rows * packed.blocks.in;
  expect_addressable(x, inputs * static_cast<std::int64_t>(size_of(impl_->compute)));
  expect_addressable(out, rows * packed.blocks.out * static_cast<std::int64_t>(sizeof(float)));
  if (rows <= packed.most_own_rows) {
    impl_->run_own(product);
  } else {
    impl_->onednn->run(product);
  }
}

std::string LinearEngine::implementation(const LinearWeights& weights, std::int32_t rows) {
  const auto& packed = static_cast<const PackedWeights&>(weights);
  if (rows <= packed.most_own_rows) return "own";
  return impl_->onednn->implementation(packed.blocks, !packed.bias.empty(), rows);
}

}  // namespace coppice::cpu
