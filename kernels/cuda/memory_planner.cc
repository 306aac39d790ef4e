#include "kernels/cuda/memory_planner.h"

#include "base/error.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/cuda_pass.h"
#include "kernels/cuda/linear.h"
#include "kernels/cuda/memory_ledger.h"
#include "kernels/cuda/sampler.h"
#include "kernels/cuda/weight_upload.h"

namespace coppice::cuda {
namespace {

class PlannedWeights final : public LinearWeights {
 public:
  PlannedWeights(std::int64_t in, std::int64_t out, DeviceBuffer values, DeviceBuffer bias)
      : in_(in), out_(out), values_(std::move(values)), bias_(std::move(bias)) {}
  std::int64_t in_features() const override { return in_; }
  std::int64_t out_features() const override { return out_; }
  std::size_t bytes() const override { return values_.bytes() + bias_.bytes(); }
  const void* table(DType& dtype) const override {
    dtype = DType::bf16;
    return values_.data();
  }

 private:
  std::int64_t in_, out_;
  DeviceBuffer values_, bias_;
};

class PlannedPass final : public Pass {
 public:
  PlannedPass(const PassLimits& limits, const Allocate& allocate) {
    const PassBytes bytes = pass_bytes(limits, prepare_attention(limits.attention.head_dim));
    buffers_.push_back(allocate(bytes.inputs, pass_inputs_purpose));
    buffers_.push_back(allocate(bytes.prefix, pass_inputs_purpose));
    buffers_.push_back(allocate(bytes.partial_out, attention_purpose));
    buffers_.push_back(allocate(bytes.partial_lse, attention_purpose));
    buffers_.push_back(allocate(bytes.tickets, attention_purpose));
  }
  PassShape begin(const PassInputs&) override { throw_failure("memory planner: it runs nothing"); }
  void run(const PassVariant&, const std::function<void()>&) override {
    throw_failure("memory planner: it runs nothing");
  }

 private:
  std::vector<DeviceBuffer> buffers_;
};

class MemoryPlanner final : public Device {
 public:
  MemoryPlanner() : workspace_(allocate(linear_workspace_bytes, linear_workspace_purpose)) {}

  std::string name() const override { return "cuda"; }
  DType compute_dtype() const override { return DType::bf16; }
  DType kv_dtype() const override { return DType::bf16; }
  int threads() const override { return 1; }
  bool shares_host_memory() const override { return false; }
  bool checks_finite() const override { return true; }
  std::vector<MemoryUse> memory_use() const override { return ledger_.uses(); }

  // Addresses that are never used, but differ.
  DeviceBuffer allocate(std::size_t bytes, const char* purpose) override {
    void* const address = reinterpret_cast<void*>(next_);
    next_ += (bytes + 511) / 256 * 256;
    ledger_.add(address, bytes, purpose);
    return {address, bytes,
            [](void* memory, void* ledger) { static_cast<MemoryLedger*>(ledger)->remove(memory); },
            &ledger_};
  }
  void upload(void*, const void*, std::size_t) override {}
  void download(void*, const void*, std::size_t) override { refuse(); }
  void synchronize() override {}

  std::unique_ptr<LinearWeights> pack_linear(std::span<const LinearPart> parts,
                                             std::int64_t in_features, std::span<const float> bias,
                                             std::int32_t) override {
    std::int64_t out_features = 0;
    for (const LinearPart& part : parts) {
      out_features += part.out_features;
      if (part.dtype != DType::bf16 && staging_.bytes() == 0) {
        staging_ = allocate(weight_staging_bytes, weight_staging_purpose);
      }
    }
    if (search_.bytes() == 0) search_ = allocate(weight_search_bytes, weight_search_purpose);
    const auto bytes = static_cast<std::size_t>(in_features * out_features) * size_of(DType::bf16);
    DeviceBuffer values = allocate(bytes, weights_purpose);
    DeviceBuffer added;
    if (!bias.empty()) added = allocate(bias.size_bytes(), bias_purpose);
    return std::make_unique<PlannedWeights>(in_features, out_features, std::move(values),
                                            std::move(added));
  }
  std::unique_ptr<Pass> make_pass(const PassLimits& limits) override {
    return std::make_unique<PlannedPass>(limits, [this](std::size_t bytes, const char* purpose) {
      return allocate(bytes, purpose);
    });
  }
  std::unique_ptr<DeviceSampler> make_sampler(const SamplerLimits& limits) override {
    sampler_ = allocate(sampler_device_bytes(limits), sampler_purpose);
    return nullptr;
  }

  std::int32_t padded_rows(std::int32_t rows) const override { return padded_row_count(rows); }
  void embed(const Pass&, const void*, DType, std::int64_t, float*) override { refuse(); }
  void rms_norm(const float*, const float*, float, std::int32_t, std::int64_t, void*) override {
    refuse();
  }
  void linear(const LinearWeights&, const void*, std::int32_t, float*, bool) override { refuse(); }
  void rope_write_kv(const Pass&, float*, std::int32_t, const RopeTable&, const KvLayout&, void*,
                     void*, std::int32_t) override {
    refuse();
  }
  void swiglu(const float*, std::int32_t, std::int64_t, void*) override { refuse(); }
  void tree_attention(const Pass&, const float*, std::int64_t, std::int32_t, float, const KvLayout&,
                      const void*, const void*, std::int32_t, void*) override {
    refuse();
  }
  void gather_logit_rows(const Pass&, const float*, std::int64_t, float*) override { refuse(); }

 private:
  [[noreturn]] static void refuse() { throw_failure("memory planner: it runs nothing"); }

  MemoryLedger ledger_;
  std::uintptr_t next_ = std::uintptr_t{1} << 44;
  DeviceBuffer workspace_, staging_, search_, sampler_;
};

}  // namespace

std::unique_ptr<Device> make_memory_planner() { return std::make_unique<MemoryPlanner>(); }

}  // namespace coppice::cuda
