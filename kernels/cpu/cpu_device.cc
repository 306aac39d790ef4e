#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "kernels/attention_plan.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/embedding.h"
#include "kernels/cpu/gather.h"
#include "kernels/cpu/glu.h"
#include "kernels/cpu/instruction_set.h"
#include "kernels/cpu/linear.h"
#include "kernels/cpu/link_communicator.h"
#include "kernels/cpu/memory.h"
#include "kernels/cpu/rms_norm.h"
#include "kernels/cpu/rope.h"
#include "kernels/cpu/soft_cap.h"
#include "kernels/cpu/thread_communicator.h"
#include "kernels/cpu/weight_stream.h"
#include "kernels/cpu/workers.h"
#include "kernels/device.h"
#include "kernels/window.h"

namespace coppice {
namespace {

/// Holds copies of the lists that operations read, and an attention plan for each window, which its
/// layers share.
class CpuPass final : public Pass {
 public:
  explicit CpuPass(const PassLimits& limits)
      : windows_(limits.windows), plans_(limits.windows.size()) {}

  PassShape begin(const PassInputs& inputs) override {
    const auto rows = static_cast<std::int32_t>(inputs.tokens.size());
    tokens.assign(inputs.tokens.begin(), inputs.tokens.end());
    positions.assign(inputs.positions.begin(), inputs.positions.end());
    write_slots.assign(inputs.write_slots.begin(), inputs.write_slots.end());
    logit_rows.assign(inputs.logit_rows.begin(), inputs.logit_rows.end());
    for (std::size_t i = 0; i < windows_.size(); ++i) {
      trim_to_window(inputs.segments, inputs.positions, windows_[i], trimmed_);
      plans_[i].assign(trimmed_, rows, inputs.division);
    }
    return {rows, static_cast<std::int32_t>(logit_rows.size())};
  }
  void run(const PassVariant&, const std::function<void()>& body) override { body(); }

  const AttentionPlan& plan_for(std::int32_t window) const {
    const auto found = std::find(windows_.begin(), windows_.end(), window);
    if (found == windows_.end()) {
      throw_failure(cat("attention: a window of ", window, " tokens is none of the pass's"));
    }
    return plans_[static_cast<std::size_t>(found - windows_.begin())];
  }

  std::vector<TokenId> tokens;
  std::vector<std::int32_t> positions, logit_rows;
  std::vector<KvSlot> write_slots;

 private:
  const std::vector<std::int32_t> windows_;
  std::vector<AttentionPlan> plans_;  ///< by window
  std::vector<KvSegment> trimmed_;
};

const CpuPass& cpu_pass(const Pass& pass) { return static_cast<const CpuPass&>(pass); }

class CpuDevice final : public Device {
 public:
  CpuDevice(DType compute, bool integer_products, DType kv, int threads)
      : compute_(compute),
        integer_products_(integer_products),
        kv_(kv),
        workers_(threads),
        linear_(compute, integer_products, workers_),
        attention_(workers_) {}

  std::string name() const override { return "cpu"; }
  DType compute_dtype() const override { return compute_; }
  DType kv_dtype() const override { return kv_; }
  int threads() const override { return workers_.threads(); }
  bool integer_products() const override { return compute_ == DType::f32 && integer_products_; }
  std::string description() const override { return cpu::describe_processor(); }

  DeviceBuffer allocate(std::size_t bytes, const char* purpose) override {
    return cpu::allocate(bytes, purpose);
  }
  DeviceBuffer reserve(std::size_t bytes, const char* purpose) override {
    return cpu::reserve(bytes, purpose);
  }
  void upload(void* device, const HostBytes& host, std::size_t bytes) override {
    host.read(0, {static_cast<std::byte*>(device), bytes});
  }
  void download(void* host, const void* device, std::size_t bytes) override {
    if (bytes > 0) std::memcpy(host, device, bytes);
  }
  void synchronize() override {}

  bool embeds(WeightFormat) const override { return true; }
  std::unique_ptr<LinearWeights> pack_linear(std::span<const LinearPart> parts,
                                             std::int64_t in_features, std::span<const float> bias,
                                             std::int32_t max_rows) override {
    return linear_.pack(parts, in_features, bias, max_rows);
  }
  std::unique_ptr<WeightStream> make_weight_stream(std::int32_t places) override {
    return std::make_unique<cpu::CpuWeightStream>(places);
  }
  std::unique_ptr<Pass> make_pass(const PassLimits& limits) override {
    return std::make_unique<CpuPass>(limits);
  }
  std::vector<std::unique_ptr<Communicator>> make_communicators(
      std::span<Device* const> devices, std::chrono::milliseconds patience) override {
    return cpu::make_thread_communicators(static_cast<int>(devices.size()), patience);
  }
  std::unique_ptr<Communicator> join_group(const RankGroup& group) override {
    return cpu::make_link_communicator(group);
  }
  void embed(const Pass& pass, const EmbeddingTable& table, std::int64_t hidden, float scale,
             float* out) override {
    const std::vector<TokenId>& tokens = cpu_pass(pass).tokens;
    if (table.packed == nullptr) {
      cpu::embed(table.rows, table.format, hidden, tokens, scale, out, workers_);
      return;
    }
    workers_.run_rows(std::ssize(tokens), hidden, 1 << 12,
                      [&](std::int64_t begin, std::int64_t end) {
                        for (std::int64_t r = begin; r < end; ++r) {
                          linear_.embed_row(*table.packed, tokens[static_cast<std::size_t>(r)],
                                            scale, out + r * hidden);
                        }
                      });
  }
  void rms_norm(const float* x, const float* weight, float epsilon, std::int32_t rows,
                std::int64_t hidden, void* out) override {
    cpu::rms_norm(x, weight, epsilon, rows, hidden, compute_, out, workers_);
  }
  void add_rms_norm(const float* x, const float* weight, float epsilon, std::int32_t rows,
                    std::int64_t hidden, float* into) override {
    cpu::add_rms_norm(x, weight, epsilon, rows, hidden, into, workers_);
  }
  void linear(const LinearWeights& weights, const void* x, std::int32_t rows, float* out,
              bool accumulate) override {
    linear_.run(weights, x, rows, out, accumulate);
  }
  std::int32_t padded_rows(std::int32_t rows) const override {
    return compute_ == DType::bf16 ? cpu::padded_row_count(rows) : rows;
  }
  void rope_write_kv(const Pass& pass, float* qkv, const QkvOutput& to) override {
    cpu::rope_write_kv(qkv, cpu_pass(pass).positions, cpu_pass(pass).write_slots, to, kv_,
                       workers_);
  }
  void glu(Activation activation, const float* gate_up, std::int32_t rows, std::int64_t n,
           void* out) override {
    cpu::glu(activation, gate_up, rows, n, compute_, out, workers_);
  }
  void tree_attention(const Pass& pass, const float* q, std::int64_t q_stride, std::int32_t heads,
                      const AttentionRule& rule, const KvLayout& layout, const void* keys,
                      const void* values, std::int32_t layer, void* out) override {
    const CpuPass& p = cpu_pass(pass);
    attention_.run(p.plan_for(rule.window), p.positions, q, q_stride, heads, rule, layout, kv_,
                   keys, values, layer, compute_, out);
  }
  void gather_logit_rows(const Pass& pass, const float* x, std::int64_t width,
                         float* out) override {
    cpu::gather_rows(x, width, cpu_pass(pass).logit_rows, out, workers_);
  }
  void soft_cap(float* logits, std::int32_t rows, std::int64_t width, float cap) override {
    cpu::soft_cap(logits, rows, width, cap, workers_);
  }

 private:
  DType compute_;
  bool integer_products_;
  DType kv_;
  cpu::Workers workers_;
  cpu::LinearEngine linear_;
  cpu::AttentionEngine attention_;
};

}  // namespace

std::unique_ptr<Device> make_cpu_device(const CpuOptions& options) {
  if (options.threads < 0) {
    throw_usage(cat("CPU threads: ", options.threads, "; use 0 for all, or a positive number"));
  }
  const bool native_bf16 = cpu::has_native_bf16();  // settles the instruction set
  if (options.compute == DType::bf16 && !native_bf16) {
    throw_usage(cat("bf16 on the CPU: it takes AVX-512 BF16, and this is ",
                    cpu::describe_processor(), "; use f32"));
  }
  const int threads = options.threads > 0 ? options.threads : cpu::usable_threads();
  return std::make_unique<CpuDevice>(options.compute, options.integer_products, options.kv,
                                     threads);
}

}  // namespace coppice
