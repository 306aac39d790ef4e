#include <cstring>

#include "base/error.h"
#include "kernels/attention.h"
#include "kernels/cpu/memory.h"
#include "kernels/cpu/workers.h"
#include "kernels/device.h"
#include "kernels/embedding.h"
#include "kernels/gather.h"
#include "kernels/linear.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/swiglu.h"

namespace coppice {
namespace {

class CpuDevice final : public Device {
 public:
  CpuDevice(DType compute, int threads)
      : compute_(compute), workers_(threads), linear_(compute, workers_), attention_(workers_) {}

  std::string name() const override { return "cpu"; }
  DType compute_dtype() const override { return compute_; }
  int threads() const override { return workers_.threads(); }

  DeviceBuffer allocate(std::size_t bytes, const char* purpose) override {
    return cpu::allocate(bytes, purpose);
  }
  void upload(void* device, const void* host, std::size_t bytes) override {
    if (bytes > 0) std::memcpy(device, host, bytes);
  }
  void download(void* host, const void* device, std::size_t bytes) override {
    if (bytes > 0) std::memcpy(host, device, bytes);
  }
  void synchronize() override {}

  std::unique_ptr<LinearWeights> pack_linear(std::span<const LinearPart> parts,
                                             std::int64_t in_features, std::span<const float> bias,
                                             std::int32_t max_rows) override {
    return linear_.pack(parts, in_features, bias, max_rows);
  }
  void embed(const void* table, DType dtype, std::int64_t hidden, std::span<const TokenId> tokens,
             float* out) override {
    cpu::embed(table, dtype, hidden, tokens, out, workers_);
  }
  void rms_norm(const float* x, const float* weight, float epsilon, std::int32_t rows,
                std::int64_t hidden, void* out) override {
    cpu::rms_norm(x, weight, epsilon, rows, hidden, compute_, out, workers_);
  }
  void linear(const LinearWeights& weights, const void* x, std::int32_t rows, float* out,
              bool accumulate) override {
    linear_.run(weights, x, rows, out, accumulate);
  }
  std::int32_t padded_rows(std::int32_t rows) const override { return cpu::padded_row_count(rows); }
  void rope_write_kv(float* qkv, std::int32_t heads, const RopeTable& rope,
                     std::span<const std::int32_t> positions, std::span<const KvSlot> slots,
                     const KvLayout& layout, float* keys, float* values,
                     std::int32_t layer) override {
    cpu::rope_write_kv(qkv, heads, rope, positions, slots, layout, keys, values, layer, workers_);
  }
  void swiglu(const float* gate_up, std::int32_t rows, std::int64_t n, void* out) override {
    cpu::swiglu(gate_up, rows, n, compute_, out, workers_);
  }
  void tree_attention(const AttentionPlan& plan, const float* q, std::int64_t q_stride,
                      std::int32_t heads, float scale, const KvLayout& layout, const float* keys,
                      const float* values, std::int32_t layer, void* out) override {
    attention_.run(plan, q, q_stride, heads, scale, layout, keys, values, layer, compute_, out);
  }
  void gather_rows(const float* x, std::int64_t width, std::span<const std::int32_t> rows,
                   float* out) override {
    cpu::gather_rows(x, width, rows, out, workers_);
  }

 private:
  DType compute_;
  cpu::Workers workers_;
  cpu::LinearEngine linear_;
  cpu::AttentionEngine attention_;
};

}  // namespace

std::unique_ptr<Device> make_cpu_device(const CpuOptions& options) {
  if (options.threads < 0) {
    throw_usage(cat("CPU threads: ", options.threads, "; use 0 for all, or a positive number"));
  }
  DType compute = DType::f32;
  switch (options.compute) {
    case CpuOptions::Compute::f32:
      break;
    case CpuOptions::Compute::bf16:
      if (!cpu::has_native_bf16()) {
        throw_usage("bf16 on the CPU: this processor lacks AVX-512 BF16; use f32");
      }
      compute = DType::bf16;
      break;
    case CpuOptions::Compute::automatic:
      if (cpu::has_native_bf16()) compute = DType::bf16;
      break;
  }
  const int threads = options.threads > 0 ? options.threads : cpu::usable_threads();
  return std::make_unique<CpuDevice>(compute, threads);
}

}  // namespace coppice
