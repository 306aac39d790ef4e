// The device boundary: memory and the operations a model's graph is made of.
//
// The graph (models/), the policies (drafting/) and verification (verify/) are written once
// over this interface; kernels/cpu implements it now. Operations are queued in call order;
// results are visible to the host after synchronize(). On the CPU every call has finished
// when it returns.
//
// Notation: [rows, n] is row-major with n contiguous. "activation" tensors have the device's
// activation type (f32 or bf16), all others the type their name gives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/types.h"
#include "kernels/attention_plan.h"

namespace coppice {

enum class DType { f32, f16, bf16 };

std::size_t size_of(DType dtype);
const char* name_of(DType dtype);

/// Move-only owner of device memory; zero-filled when allocated.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  using Deleter = void (*)(void* memory, void* context);
  DeviceBuffer(void* memory, std::size_t bytes, Deleter deleter, void* context)
      : memory_(memory), bytes_(bytes), deleter_(deleter), context_(context) {}
  DeviceBuffer(DeviceBuffer&& other) noexcept { swap(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    swap(other);
    return *this;
  }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  ~DeviceBuffer() {
    if (memory_ != nullptr) deleter_(memory_, context_);
  }

  std::size_t bytes() const { return bytes_; }
  void* data() const { return memory_; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(memory_);
  }

 private:
  void swap(DeviceBuffer& other) {
    std::swap(memory_, other.memory_);
    std::swap(bytes_, other.bytes_);
    std::swap(deleter_, other.deleter_);
    std::swap(context_, other.context_);
  }
  void* memory_ = nullptr;
  std::size_t bytes_ = 0;
  Deleter deleter_ = nullptr;
  void* context_ = nullptr;
};

/// Weights of one linear layer, [out_features, in_features] row-major as in the file (so
/// y = W x). Several parts stacked by output features run as one product (q, k and v; gate
/// and up).
struct LinearPart {
  const void* data = nullptr;  ///< host memory, any alignment
  DType dtype = DType::f32;
  std::int64_t out_features = 0;
};

/// Weights packed for a device; made by Device::pack_linear, used only with that device.
class LinearWeights {
 public:
  virtual ~LinearWeights() = default;
  virtual std::int64_t in_features() const = 0;
  virtual std::int64_t out_features() const = 0;
  virtual std::size_t bytes() const = 0;
};

/// A model's whole KV memory, all layers: [layer][page][kv_head][page_size][head_dim] f32 for
/// keys and the same for values.
struct KvLayout {
  std::int32_t layers = 0;
  std::int32_t kv_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t page_size = 16;
  std::int32_t pages = 0;

  std::int32_t slots() const { return pages * page_size; }
};

/// Frequencies of rotary embedding: cos and sin of position * frequency, [positions,
/// head_dim / 2] f32 each on the device (half-split layout of Hugging Face's Llama: element i
/// pairs with i + head_dim / 2).
struct RopeTable {
  DeviceBuffer cosine;
  DeviceBuffer sine;
  std::int32_t positions = 0;
  std::int32_t half_dim = 0;
};

class Device {
 public:
  virtual ~Device() = default;

  virtual std::string name() const = 0;     ///< "cpu" or "cuda"
  virtual DType compute_dtype() const = 0;  ///< type of matrix products and activations
  virtual int threads() const = 0;

  // --- memory -----------------------------------------------------------------------------
  /// Throws Error(failure) with the size, what is free and the remedy. `purpose` names the
  /// buffer in that message.
  virtual DeviceBuffer allocate(std::size_t bytes, const char* purpose) = 0;
  virtual void upload(void* device, const void* host, std::size_t bytes) = 0;
  virtual void download(void* host, const void* device, std::size_t bytes) = 0;
  virtual void synchronize() = 0;

  // --- weights ----------------------------------------------------------------------------
  /// `bias` is empty or has as many f32 values as all parts have output features.
  /// `max_rows` is the largest number of rows linear() will be called with.
  virtual std::unique_ptr<LinearWeights> pack_linear(std::span<const LinearPart> parts,
                                                     std::int64_t in_features,
                                                     std::span<const float> bias,
                                                     std::int32_t max_rows) = 0;

  // --- operations (each documented in its own header under kernels/) -------------------------
  /// kernels/embedding.h: out[r, :] = table[tokens[r], :]; table [vocab, hidden] of `dtype`.
  virtual void embed(const void* table, DType dtype, std::int64_t hidden,
                     std::span<const TokenId> tokens, float* out) = 0;
  /// kernels/rms_norm.h: out[r, :] = x[r, :] / sqrt(mean(x[r, :]^2) + epsilon) * weight.
  /// x [rows, hidden] f32, weight [hidden] f32, out [rows, hidden] activation.
  virtual void rms_norm(const float* x, const float* weight, float epsilon, std::int32_t rows,
                        std::int64_t hidden, void* out) = 0;
  /// kernels/linear.h: out = x W^T + bias, or out += when `accumulate`. x [rows, in]
  /// activation, out [rows, out] f32. 1 <= rows <= max_rows of the weights. Both buffers
  /// must have room for padded_rows(rows) rows: products may run at a padded row count.
  virtual void linear(const LinearWeights& weights, const void* x, std::int32_t rows, float* out,
                      bool accumulate) = 0;
  virtual std::int32_t padded_rows(std::int32_t rows) const = 0;
  /// kernels/rope.h: rotates the q and k parts of qkv [rows, (heads + 2 kv_heads) head_dim] f32
  /// (q heads, then k heads, then v heads) by positions[r]; q in place, k and v into
  /// slots[r] of `layer`.
  virtual void rope_write_kv(float* qkv, std::int32_t heads, const RopeTable& rope,
                             std::span<const std::int32_t> positions, std::span<const KvSlot> slots,
                             const KvLayout& layout, float* keys, float* values,
                             std::int32_t layer) = 0;
  /// kernels/swiglu.h: out[r, i] = silu(gate_up[r, i]) * gate_up[r, n + i]; gate_up [rows, 2n]
  /// f32, out [rows, n] activation.
  virtual void swiglu(const float* gate_up, std::int32_t rows, std::int64_t n, void* out) = 0;
  /// kernels/attention.h: DeFT-Flatten attention by a plan. q is the first heads * head_dim
  /// columns of qkv rows with stride `q_stride`; out [rows, heads * head_dim] activation.
  /// scale multiplies q k.
  virtual void tree_attention(const AttentionPlan& plan, const float* q, std::int64_t q_stride,
                              std::int32_t heads, float scale, const KvLayout& layout,
                              const float* keys, const float* values, std::int32_t layer,
                              void* out) = 0;
  /// kernels/gather.h: out[i, :] = x[rows[i], :], f32.
  virtual void gather_rows(const float* x, std::int64_t width, std::span<const std::int32_t> rows,
                           float* out) = 0;
};

struct CpuOptions {
  int threads = 0;  ///< 0: as many as the process may use
  enum class Compute { automatic, f32, bf16 } compute = Compute::automatic;
};

/// bf16 on request where the processor lacks its instructions is Error(usage). automatic:
/// bf16 where the processor multiplies it natively, f32 elsewhere.
std::unique_ptr<Device> make_cpu_device(const CpuOptions& options);

}  // namespace coppice
