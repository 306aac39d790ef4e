// The CUDA backend: one GPU, one stream, kernels/cuda/ behind the device interface.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <optional>
#include <type_traits>

#include "base/error.h"
#include "base/mebibytes.h"
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/attention/hopper_attention.h"
#include "kernels/cuda/backend.h"
#include "kernels/cuda/card_communicator.h"
#include "kernels/cuda/error.h"
#include "kernels/cuda/linear/code_loader.h"
#include "kernels/cuda/linear/linear.h"
#include "kernels/cuda/linear/product_proposals.h"
#include "kernels/cuda/linear/streamed_linear.h"
#include "kernels/cuda/linear/weight_stream.h"
#include "kernels/cuda/linear/weight_upload.h"
#include "kernels/cuda/memory_ledger.h"
#include "kernels/cuda/nccl_communicator.h"
#include "kernels/cuda/pass/cuda_pass.h"
#include "kernels/cuda/pass/elementwise.h"
#include "kernels/cuda/pass/rope_tensors.h"
#include "kernels/cuda/probe.h"
#include "kernels/cuda/sampling/sampler.h"
#include "kernels/device.h"

namespace coppice::cuda {
namespace {

/// A stream of its own, so that nothing waits for the default stream.
class Stream {
 public:
  Stream() { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream"); }
  ~Stream() { cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator cudaStream_t() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

struct Card {
  std::string product;
  std::size_t total = 0;
};

Card card(int device) {
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, device), "asking for the GPU's properties");
  return {properties.name, properties.totalGlobalMem};
}

constexpr int first_device = 0;

/// Makes a GPU current in this thread while it lives.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device) : device_(device), former_(enter(device)) {}
  ~CurrentDevice() { leave(device_, former_); }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

  static int enter(int device) {
    int former = device;
    check(cudaGetDevice(&former), "asking for the current GPU");
    if (former != device) check(cudaSetDevice(device), "choosing the GPU");
    return former;
  }
  static void leave(int device, int former) {
    if (former != device) (void)cudaSetDevice(former);
  }

 private:
  const int device_, former_;
};

const CudaPass& cuda_pass(const Pass& pass) { return static_cast<const CudaPass&>(pass); }

/// Takes its memory where nothing can be run.
class PlannedPass final : public CudaPass {
 public:
  using CudaPass::CudaPass;
  PassShape begin(const PassInputs&) override { throw_failure("memory planner: it runs nothing"); }
};

/// A device that plans does all that a device does until a pass begins, but its memory is counted,
/// not allocated, and nothing is copied to it.
class CudaDevice final : public Device {
 public:
  explicit CudaDevice(const CudaOptions& options, bool plans = false)
      : options_(options),
        plans_(plans),
        card_(card(options.device)),
        upload_(allocator(), stream_, !plans),
        transfers_(stream_),
        linear_(upload_, allocator(), true, &timing_, &proposals_) {
    timing_.allowed = !options_.record;  // else once a pass has shown that it is used often
  }
  ~CudaDevice() override { cudaStreamSynchronize(stream_); }

  std::string name() const override { return "cuda"; }
  std::string description() const override { return card_.product; }
  std::string warning() const override { return describe_card().warning; }
  DType compute_dtype() const override { return DType::bf16; }
  DType kv_dtype() const override { return DType::bf16; }
  int threads() const override { return 1; }
  bool shares_host_memory() const override { return false; }

  DeviceBuffer allocate(std::size_t bytes, const char* purpose) override {
    if (plans_) return count(bytes, purpose);
    const std::size_t used = ledger_.total();
    if (used + bytes > budget()) {
      throw_failure(cat("CUDA: ", purpose, " needs ", mebibytes(bytes), ", and ", mebibytes(used),
                        " are taken, but ", mebibytes(budget()), " of the ", mebibytes(card_.total),
                        " on ", card_.product,
                        " may be used; raise gpu-memory-fraction or gpu-memory, use fewer "
                        "kv-tokens, gpu-layers or a smaller model"));
    }
    void* memory = nullptr;
    const cudaError_t status = cudaMalloc(&memory, std::max<std::size_t>(bytes, 1));
    if (status == cudaErrorMemoryAllocation) {
      (void)cudaGetLastError();
      throw_failure(cat("CUDA: ", purpose, " needs ", mebibytes(bytes), ", but ",
                        mebibytes(this->memory().free), " of the ", mebibytes(card_.total), " on ",
                        card_.product,
                        " are free; end other programs on the card, use fewer kv-tokens or a "
                        "smaller model"));
    }
    check(status, "allocating memory");
    DeviceBuffer buffer(
        memory, bytes,
        [](void* freed, void* ledger) {
          static_cast<MemoryLedger*>(ledger)->remove(freed);
          (void)cudaFree(freed);  // finds the GPU by the address
        },
        &ledger_);
    ledger_.add(memory, bytes, purpose);
    check(cudaMemsetAsync(memory, 0, bytes, stream_), "clearing memory");
    return buffer;
  }
  void upload(void* device, const HostBytes& host, std::size_t bytes) override {
    if (bytes > 0) upload_.upload(device, host, bytes);
  }
  void download(void* host, const void* device, std::size_t bytes) override {
    if (bytes == 0) return;
    check(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream_), "downloading");
    synchronize();
  }
  void synchronize() override { check(cudaStreamSynchronize(stream_), "waiting for the GPU"); }
  std::vector<MemoryUse> memory_use() const override { return ledger_.uses(); }
  DeviceMemory memory() const override {
    DeviceMemory memory;
    check(cudaMemGetInfo(&memory.free, &memory.total), "asking for free memory");
    memory.budget = budget();
    // What is free for a plan includes what this device holds already.
    memory.free += ledger_.total();
    return memory;
  }
  std::unique_ptr<Device> memory_planner() const override {
    return std::make_unique<CudaDevice>(options_, true);
  }
  int enter() const override { return CurrentDevice::enter(options_.device); }
  void leave(int former) const override { CurrentDevice::leave(options_.device, former); }

  void expect_products(std::span<const ExpectedProduct> products) override {
    if (plans_) return;
    if (!code_loader_) code_loader_.emplace(proposals_);
    code_loader_->load(products, linear_.streams());
  }
  std::unique_ptr<LinearWeights> pack_linear(std::span<const LinearPart> parts,
                                             std::int64_t in_features, std::span<const float> bias,
                                             std::int32_t max_rows) override {
    return linear_.pack(parts, in_features, bias, max_rows);
  }
  std::unique_ptr<WeightStream> make_weight_stream(std::int32_t places) override {
    return std::make_unique<CudaWeightStream>(places, allocator(), stream_, !plans_);
  }
  std::unique_ptr<Pass> make_pass(const PassLimits& limits) override {
    const ResidentBlocks blocks = prepare_attention(limits.attention.head_dim);
    const auto make = [&]<typename Made>(std::type_identity<Made>) {
      return std::make_unique<Made>(limits, blocks, allocator(), transfers_, stream_,
                                    options_.record && !limits.streams_weights, preparations_,
                                    timing_);
    };
    if (plans_) return make(std::type_identity<PlannedPass>());
    return make(std::type_identity<CudaPass>());
  }
  std::vector<std::unique_ptr<Communicator>> make_communicators(
      std::span<Device* const> devices, std::chrono::milliseconds patience) override {
    std::vector<RankPlace> places;
    for (const Device* const device : devices) {
      const auto& rank = static_cast<const CudaDevice&>(*device);
      places.push_back({rank.options_.device, rank.stream_});
    }
    const auto here = [&](const RankPlace& place) { return place.device == options_.device; };
    if (!std::all_of(places.begin(), places.end(), here)) return make_nccl_communicators(places);
    if (options_.record) {
      throw_failure("ranks of one GPU: passes that wait for each other cannot be recorded");
    }
    const CurrentDevice current(options_.device);
    std::vector<cudaStream_t> streams;
    for (const RankPlace& place : places) streams.push_back(place.stream);
    return make_card_communicators(streams, patience);
  }
  std::string new_group_id() const override { return new_nccl_group_id(); }
  std::unique_ptr<Communicator> join_group(const RankGroup& group) override {
    const CurrentDevice current(options_.device);
    return join_nccl_group(group, stream_);
  }
  Preparations preparations() const override { return preparations_; }
  std::unique_ptr<DeviceSampler> make_sampler(const SamplerLimits& limits) override {
    return std::make_unique<CudaSampler>(limits, allocator(), transfers_, stream_);
  }

  void embed(const Pass& pass, const EmbeddingTable& table, std::int64_t hidden, float scale,
             float* out) override {
    cuda::embed(cuda_pass(pass).view(), table.rows, dtype_of(table.format).value(), hidden, scale,
                out, cuda_pass(pass).padded_rows(), stream_);
  }
  void rms_norm(const float* x, const float* weight, float epsilon, std::int32_t rows,
                std::int64_t hidden, void* out) override {
    cuda::rms_norm(x, weight, epsilon, rows, hidden, out, stream_);
  }
  void add_rms_norm(const float* x, const float* weight, float epsilon, std::int32_t rows,
                    std::int64_t hidden, float* into) override {
    cuda::add_rms_norm(x, weight, epsilon, rows, hidden, into, stream_);
  }
  void add_rms_norm_then_norm(const float* x, const float* weight, const float* next_weight,
                              float epsilon, std::int32_t rows, std::int64_t hidden, float* into,
                              void* out) override {
    cuda::add_rms_norm_then_norm(x, weight, next_weight, epsilon, rows, hidden, into, out, stream_);
  }
  void linear(const LinearWeights& weights, const void* x, std::int32_t rows, float* out,
              bool accumulate) override {
    linear_.run(weights, x, rows, out, accumulate, stream_);
  }
  void qkv_linear(const Pass& pass, const LinearWeights& weights, const void* x, std::int32_t rows,
                  float* qkv, const QkvOutput& to) override {
    const RopeTensors tensors = rope_tensors(cuda_pass(pass).view(), qkv, to);
    if (linear_.run_qkv(weights, x, rows, tensors, stream_)) return;
    Device::qkv_linear(pass, weights, x, rows, qkv, to);
  }
  void gated_linear(Activation activation, const LinearWeights& weights, const void* x,
                    std::int32_t rows, float* gate_up, void* out) override {
    if (linear_.run_gated(weights, activation, x, rows, out, stream_)) return;
    Device::gated_linear(activation, weights, x, rows, gate_up, out);
  }
  std::int32_t padded_rows(std::int32_t rows) const override { return padded_row_count(rows); }
  void rope_write_kv(const Pass& pass, float* qkv, const QkvOutput& to) override {
    cuda::rope_write_kv(cuda_pass(pass).view(), qkv, to, cuda_pass(pass).padded_rows(), stream_);
  }
  void glu(Activation activation, const float* gate_up, std::int32_t rows, std::int64_t n,
           void* out) override {
    cuda::glu(activation, gate_up, rows, n, out, stream_);
  }
  void tree_attention(const Pass& pass, const float* q, std::int64_t q_stride, std::int32_t heads,
                      const AttentionRule& rule, const KvLayout& layout, const void* keys,
                      const void* values, std::int32_t layer, void* out) override {
    const CudaPass& p = cuda_pass(pass);
    const AttentionShape shape = {heads, layout.kv_heads, layout.head_dim};
    const CudaPass::Window window = p.window(rule.window);
    cuda::tree_attention(window.launch, window.view, p.padded_rows(), q, q_stride, shape, rule,
                         layout, keys, values, layer, out, p.scratch(), p.blocks(), stream_);
  }
  void gather_logit_rows(const Pass& pass, const float* x, std::int64_t width,
                         float* out) override {
    cuda::gather_logit_rows(cuda_pass(pass).view(), x, width, out,
                            cuda_pass(pass).padded_logit_rows(), stream_);
  }
  void soft_cap(float* logits, std::int32_t rows, std::int64_t width, float cap) override {
    cuda::soft_cap(logits, rows, width, cap, stream_);
  }

 private:
  std::size_t budget() const {
    if (options_.memory_limit > 0) return std::min(card_.total, options_.memory_limit);
    return static_cast<std::size_t>(static_cast<double>(card_.total) * options_.memory_fraction);
  }
  /// Addresses that are never used, but differ.
  DeviceBuffer count(std::size_t bytes, const char* purpose) {
    void* const address = reinterpret_cast<void*>(next_);
    next_ += (bytes + 511) / 256 * 256;
    ledger_.add(address, bytes, purpose);
    return {address, bytes,
            [](void* memory, void* ledger) { static_cast<MemoryLedger*>(ledger)->remove(memory); },
            &ledger_};
  }
  Allocate allocator() {
    return [this](std::size_t bytes, const char* purpose) { return allocate(bytes, purpose); };
  }

  const CudaOptions options_;
  Preparations preparations_;
  const bool plans_;
  std::uintptr_t next_ = std::uintptr_t{1} << 44;
  const Card card_;
  Stream stream_;
  MemoryLedger ledger_;  // outlives all that allocates
  WeightUpload upload_;
  Transfers transfers_;
  ProductTiming timing_;        // outlives what times
  ProductProposals proposals_;  // outlives what asks
  LinearEngine linear_;
  std::optional<CodeLoader> code_loader_;  // stops first
};

}  // namespace

bool has_device(std::string* why_not, bool* present) {
  if (present != nullptr) *present = false;
  const auto no = [&](const std::string& why) {
    if (why_not != nullptr) *why_not = why;
    return false;
  };
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaErrorInsufficientDriver) {
    (void)cudaGetLastError();
    return no(cat("no NVIDIA driver is installed, or it is older than CUDA ", CUDART_VERSION / 1000,
                  ".", CUDART_VERSION % 1000 / 10, " asks for"));
  }
  if (status != cudaSuccess) {
    (void)cudaGetLastError();
    return no(cat("no usable NVIDIA GPU or driver: ", cudaGetErrorString(status)));
  }
  if (count == 0) return no("no NVIDIA GPU is visible");
  if (present != nullptr) *present = true;
  int major = 0, minor = 0;
  if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0) != cudaSuccess ||
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0) != cudaSuccess) {
    return no("the GPU does not say what it is");
  }
  if (major < 8) {
    return no(
        cat("the GPU has compute capability ", major, ".", minor, "; coppice needs 8.0 or later"));
  }
  const CurrentDevice current(first_device);
  const cudaError_t opened = probe_device();
  if (opened != cudaSuccess && opened != cudaErrorNoKernelImageForDevice) {
    return no(cat("the GPU cannot be opened: ", cudaGetErrorString(opened)));
  }
  if (opened != cudaSuccess) {
    return no(cat("this build holds no code for the GPU's compute capability ", major, ".", minor,
                  "; build with COPPICE_CUDA_ARCHITECTURES=native"));
  }
  return true;
}

int device_count() {
  int count = 0;
  check(cudaGetDeviceCount(&count), "counting GPUs");
  return count;
}

CardCode describe_card() {
  const CurrentDevice current(first_device);
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, first_device), "asking for the GPU's properties");
  const bool hopper = prepare_streamed_linear() > 0 && prepare_hopper_attention(128) > 0;
  return card_code(properties.name, properties.major, properties.minor, COPPICE_CUDA_ARCHITECTURES,
                   hopper);
}

std::unique_ptr<Device> make_device(const CudaOptions& options) {
  std::string why_not;
  if (!has_device(&why_not)) {
    throw_failure(cat("--device cuda: ", why_not, "; use --device cpu"));
  }
  const int count = device_count();
  if (options.device < 0 || options.device >= count) {
    throw_usage(cat("--devices ", options.device, ": ", count, count == 1 ? " GPU is" : " GPUs are",
                    " visible; use 0 to ", count - 1));
  }
  const CurrentDevice current(options.device);
  return std::make_unique<CudaDevice>(options);
}

}  // namespace coppice::cuda
