// The device boundary: memory and the operations a model's graph is made of.
//
// models/ has one graph over it, kernels/cpu and kernels/cuda implement it. Where a device samples
// (device_sampler.h), drafting/ and verify/ have a second implementation of drawing and judging.
// Operations are queued in call order; results are visible to the host after synchronize(). On the
// CPU every call has finished when it returns.
//
// What differs from pass to pass (tokens, positions, slots, who sees what) lies in a Pass;
// operations read it there. So a device may record a pass's operations once for a number of
// rows and play them back for every later tree and prefix.
//
// Notation: [rows, n] is row-major with n contiguous. "activation" tensors have the device's
// activation type (f32 or bf16), all others the type their name gives.
#pragma once

#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/types.h"
#include "kernels/host_bytes.h"
#include "kernels/visible_kv.h"
#include "kernels/weight_format.h"

namespace coppice {

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
/// and up), each in its own format.
struct LinearPart {
  LinearPart(HostBytes bytes, WeightFormat stored, std::int64_t outputs)
      : data(std::move(bytes)), format(stored), out_features(outputs) {}
  LinearPart(HostBytes bytes, DType stored, std::int64_t outputs)
      : LinearPart(std::move(bytes), format_of(stored), outputs) {}

  HostBytes data;
  WeightFormat format;
  std::int64_t out_features;
};

class LinearWeights;

/// What token embeddings are read from: rows [vocab, hidden] of a format in device memory, or
/// weights that a device has packed.
struct EmbeddingTable {
  const void* rows = nullptr;
  WeightFormat format = WeightFormat::f32;
  const LinearWeights* packed = nullptr;

  bool is_there() const { return rows != nullptr || packed != nullptr; }
};

/// Weights packed for a device; made by Device::pack_linear, used only with that device.
class LinearWeights {
 public:
  virtual ~LinearWeights() = default;
  virtual std::int64_t in_features() const = 0;
  virtual std::int64_t out_features() const = 0;
  virtual std::size_t bytes() const = 0;
  /// What a WeightStream moves: read anew by every product, which find there the same bytes at
  /// another address.
  virtual std::vector<DeviceBuffer*> memory() { return {}; }
  /// The weights as an embedding table, where the device can read rows of them: tied embeddings
  /// then need no second copy. Else one without any.
  virtual EmbeddingTable table() const { return {}; }
  /// Whether a weight was NaN or infinite as read, or as rounded to what the device keeps.
  virtual bool has_non_finite() const { return false; }
};

/// Weights that lie in host memory and are on the device only while a pass uses them: layers of a
/// model that is larger than the device. Those that come and go together are a visit; visits have
/// numbers in the order of add(), in which every pass enters and leaves them.
/// kernels/weight_stream.h has the order of copies. Destroyed before the weights that it was given.
class WeightStream {
 public:
  virtual ~WeightStream() = default;
  /// Moves a further visit's weights, just packed, to the host. Throws Error(failure) for too
  /// little memory there.
  virtual void add(std::span<LinearWeights* const> weights) = 0;
  /// Takes the device memory that visits come to, after the last add(), and begins to copy.
  virtual void begin() = 0;
  /// Queued: what is queued after it finds the visit's weights on the device.
  virtual void enter(std::int32_t visit) = 0;
  /// Queued: the visit's weights are not used any more; others may take their place.
  virtual void leave(std::int32_t visit) = 0;
};

/// A model's whole KV memory, all layers: [layer][page][kv_head][page_size][head_dim] for keys
/// and the same for values, of the device's kv_dtype().
struct KvLayout {
  std::int32_t layers = 0;
  std::int32_t kv_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t page_size = 16;
  std::int32_t pages = 0;

  std::int32_t slots() const { return pages * page_size; }
  auto operator<=>(const KvLayout&) const = default;
};

/// Frequencies of rotary embedding: cos and sin of position * frequency, [positions, half_dim] f32
/// each on the device, in the half-split layout of Hugging Face's Llama: element i of a head pairs
/// with i + half_dim. Elements from 2 half_dim on, if a head has any, are not rotated.
struct RopeTable {
  DeviceBuffer cosine;
  DeviceBuffer sine;
  std::int32_t positions = 0;
  std::int32_t half_dim = 0;  ///< at most head_dim / 2
};

/// RMS norms of each head before its rotation: weights [head_dim] f32 on the device, the same for
/// all query heads and all key heads; nullptr: no norm.
struct HeadNorms {
  const float* query = nullptr;
  const float* key = nullptr;
  float epsilon = 0.0f;
};

/// What becomes of a layer's queries, keys and values after their projection.
struct QkvOutput {
  std::int32_t heads = 0;  ///< of queries; the layout says how many of keys and values
  const RopeTable* rope = nullptr;
  KvLayout layout;
  void* keys = nullptr;  ///< KV memory of `layout`, all layers
  void* values = nullptr;
  std::int32_t layer = 0;
  HeadNorms norms;
};

/// The activation of gated feed-forward layers (Shazeer, 2020).
enum class Activation {
  silu,       ///< x / (1 + exp(-x))
  gelu_tanh,  ///< x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
};

/// Heads of a model's attention; heads = group * kv_heads, head h uses KV head h / group.
struct AttentionShape {
  std::int32_t heads = 0;
  std::int32_t kv_heads = 0;
  std::int32_t head_dim = 0;
};

/// What one layer's attention does with a row's scores. Of a key that the row sees by its segment,
/// score = cap(scale q k), where cap(s) = soft_cap tanh(s / soft_cap), or s without a soft cap.
struct AttentionRule {
  float scale = 1.0f;
  float soft_cap = 0.0f;  ///< 0: none
  /// A row at position p sees only keys at positions > p - window: itself and window - 1 tokens
  /// before it, as Hugging Face counts. Positions go by depth in a tree. 0: none.
  std::int32_t window = 0;

  auto operator<=>(const AttentionRule&) const = default;
};

/// Most of everything that one pass may hold.
struct PassLimits {
  std::int32_t rows = 0;
  std::int32_t logit_rows = 0;
  std::int32_t kv_tokens = 0;  ///< of all segments together
  AttentionShape attention;
  /// Those of the layers' rules, each once, 0 for layers without one: a pass is planned for each.
  std::vector<std::int32_t> windows = {0};
  bool soft_caps = false;  ///< some of the rules have one
  /// Some of its weights come by a WeightStream: their addresses differ from pass to pass.
  bool streams_weights = false;
  bool watched = false;  ///< has_finished() is asked
};

/// How attention's work is divided. Devices run `flatten` in a way of their own; the CPU runs the
/// others, too, for comparison, and AttentionPlan (kernels/attention_plan.h) says what they are.
enum class AttentionDivision { flatten, node, node_chunk, subtree };

/// Rows of one pass, of one text or of several, in host memory. They need not outlive Pass::begin.
struct PassInputs {
  std::span<const TokenId> tokens;          ///< [rows] embedded
  std::span<const std::int32_t> positions;  ///< [rows] rotated by
  std::span<const KvSlot> write_slots;      ///< [rows] where key and value go; no_slot: nowhere
  /// What rows attend to, in depth-first order: text after text, and of each first what was before
  /// the pass. Intervals then begin in ascending order.
  std::span<const KvSegment> segments;
  std::span<const std::int32_t> logit_rows;  ///< ascending
  /// Results differ by rounding alone. begin() throws Error(usage) for one that the device lacks.
  AttentionDivision division = AttentionDivision::flatten;
};

/// Rows that a pass's operations run over: those asked for, or more where the device runs only
/// some row counts (further rows hold nothing of interest and write no KV).
struct PassShape {
  std::int32_t rows = 0;
  std::int32_t logit_rows = 0;
};

/// What the operations of a pass depend on besides its shape: passes of equal variants and shapes
/// queue the same launches.
struct PassVariant {
  const void* keys = nullptr;  ///< the KV memory read and written
  const void* values = nullptr;
  KvLayout layout;
  std::uint64_t epilogue = 0;  ///< PassEpilogue::id() of what is queued behind; 0: nothing
  bool gathers = false;        ///< rows without logits end with the last layer's keys and values

  auto operator<=>(const PassVariant&) const = default;
};

/// The inputs of a pass where a device's operations find them. Made by Device::make_pass, used
/// with that device; it may not be used by several threads at a time.
class Pass {
 public:
  virtual ~Pass() = default;
  /// Takes a pass's inputs over. Sizes within the limits and slots within the pool are the
  /// caller's business. Every row must see at least one token.
  virtual PassShape begin(const PassInputs& inputs) = 0;
  /// Runs `body`, which queues operations of this pass and nothing else. Where the device
  /// records, the second call with equal `variant` and shape records the body and later ones
  /// play it back without calling it: what it queues may depend on nothing but those two.
  virtual void run(const PassVariant& variant, const std::function<void()>& body) = 0;
  /// Whether what the last run() queued has ended. From any thread; only of a pass whose limits say
  /// that it is watched.
  virtual bool has_finished() const { return true; }
};

class Communicator;
class DeviceSampler;
struct RankGroup;
struct SamplerLimits;

/// Device memory in use for one purpose.
struct MemoryUse {
  std::string purpose;
  std::size_t bytes = 0;
};

/// A card's memory.
struct DeviceMemory {
  std::size_t total = 0;   ///< of the card
  std::size_t free = 0;    ///< now, as the driver says
  std::size_t budget = 0;  ///< most that this device may allocate
};

/// Passes that also prepared later ones like them: were recorded, or timed products to choose their
/// code. They take many times as long as those will, which says nothing of costs.
struct Preparations {
  std::int64_t passes = 0;
  double seconds = 0.0;  ///< of the host's, which then queues launches one by one or waits
};

/// A product of 1 to max_rows rows that passes will compute: x [rows, in] by W [out, in], plus a
/// bias, into their output or added to it.
struct ExpectedProduct {
  std::int64_t in = 0, out = 0;
  std::int32_t max_rows = 0;
  bool bias = false, accumulate = false;
};

class Device {
 public:
  virtual ~Device() = default;

  virtual std::string name() const = 0;     ///< "cpu" or "cuda"
  virtual DType compute_dtype() const = 0;  ///< type of matrix products and activations
  virtual DType kv_dtype() const { return DType::f32; }  ///< of models' keys and values
  virtual int threads() const = 0;
  /// Whether products with quantised weights, other than fp8, are of whole numbers.
  virtual bool integer_products() const { return false; }
  /// Whether host pointers may be given where device memory is asked for, and the other way.
  virtual bool shares_host_memory() const { return true; }

  // --- memory -----------------------------------------------------------------------------
  /// Throws Error(failure) with the size, what is free and the remedy. `purpose` names the
  /// buffer in that message.
  virtual DeviceBuffer allocate(std::size_t bytes, const char* purpose) = 0;
  /// allocate(), for what may never be used as a whole: where it can be, memory is taken as it is
  /// first written to.
  virtual DeviceBuffer reserve(std::size_t bytes, const char* purpose) {
    return allocate(bytes, purpose);
  }
  virtual void upload(void* device, const HostBytes& host, std::size_t bytes) = 0;
  virtual void download(void* host, const void* device, std::size_t bytes) = 0;
  virtual void synchronize() = 0;
  /// What is allocated now, by purpose, in the order of first use; empty where the device shares
  /// the host's memory.
  virtual std::vector<MemoryUse> memory_use() const { return {}; }
  virtual DeviceMemory memory() const { return {}; }
  /// A device that allocates nothing but counts: building models on it tells what memory_use()
  /// will be. nullptr where the device shares the host's memory.
  virtual std::unique_ptr<Device> memory_planner() const { return nullptr; }
  virtual std::string description() const { return name(); }  ///< product name, for people
  /// Why this device is slower than it could be, in one sentence with the remedy; empty as a rule.
  virtual std::string warning() const { return ""; }
  /// Makes the device current in the calling thread, where there is such a thing, and undoes it.
  /// Users of a device hold a DeviceScope around whatever they do with it.
  virtual int enter() const { return 0; }
  virtual void leave(int /*former*/) const {}

  // --- weights ----------------------------------------------------------------------------
  /// Prepares for products while the host goes on, as it reads weights, say. They need not come.
  virtual void expect_products(std::span<const ExpectedProduct>) {}
  /// Whether embed() takes tables of this format. Of the others the host makes bf16 first.
  virtual bool embeds(WeightFormat format) const { return dtype_of(format).has_value(); }
  /// `bias` is empty or has as many f32 values as all parts have output features.
  /// `max_rows` is the largest number of rows linear() will be called with.
  virtual std::unique_ptr<LinearWeights> pack_linear(std::span<const LinearPart> parts,
                                                     std::int64_t in_features,
                                                     std::span<const float> bias,
                                                     std::int32_t max_rows) = 0;
  /// For weights that this device has packed; `places` of the largest visit's size are taken of its
  /// memory. Throws Error(failure) where the device cannot.
  virtual std::unique_ptr<WeightStream> make_weight_stream(std::int32_t places);

  // --- passes -----------------------------------------------------------------------------
  virtual std::unique_ptr<Pass> make_pass(const PassLimits& limits) = 0;
  /// So far.
  virtual Preparations preparations() const { return {}; }
  /// Connects ranks that share a model, one on each of these devices, this one the first of them
  /// and all of its kind: element r is used with devices[r]. No rank's host waits longer for the
  /// others than `patience`. Throws Error(failure) where they cannot be connected, naming the
  /// remedy.
  virtual std::vector<std::unique_ptr<Communicator>> make_communicators(
      std::span<Device* const> devices, std::chrono::milliseconds patience);
  /// Names a group of processes with a device of this kind each, for join_group().
  virtual std::string new_group_id() const { return ""; }
  /// Connects ranks that are processes, of which this device's is one; returns once all have
  /// joined. Throws Error(failure) where they cannot be connected.
  virtual std::unique_ptr<Communicator> join_group(const RankGroup& group);
  /// Sampling where logits stay on the device (kernels/device_sampler.h); nullptr on devices
  /// whose logits the host reads.
  virtual std::unique_ptr<DeviceSampler> make_sampler(const SamplerLimits& limits);

  // --- operations (each documented in its own header under kernels/) -------------------------
  /// kernels/cpu/embedding.h: out[r, :] = scale * table[tokens[r], :]; table [vocab, hidden] of a
  /// format that the device keeps, out [rows, hidden] f32.
  virtual void embed(const Pass& pass, const EmbeddingTable& table, std::int64_t hidden,
                     float scale, float* out) = 0;
  /// kernels/cpu/rms_norm.h: out[r, :] = x[r, :] / sqrt(mean(x[r, :]^2) + epsilon) * weight.
  /// x [rows, hidden] f32, weight [hidden] f32, out [rows, hidden] activation.
  virtual void rms_norm(const float* x, const float* weight, float epsilon, std::int32_t rows,
                        std::int64_t hidden, void* out) = 0;
  /// kernels/cpu/rms_norm.h: into[r, :] += x[r, :] / sqrt(mean(x[r, :]^2) + epsilon) * weight, all
  /// f32; `into` must not overlap x.
  virtual void add_rms_norm(const float* x, const float* weight, float epsilon, std::int32_t rows,
                            std::int64_t hidden, float* into) = 0;
  /// add_rms_norm() and then rms_norm() of `into` with `next_weight`, in one where the device can.
  virtual void add_rms_norm_then_norm(const float* x, const float* weight, const float* next_weight,
                                      float epsilon, std::int32_t rows, std::int64_t hidden,
                                      float* into, void* out);
  /// kernels/cpu/linear.h: out = x W^T + bias, or out += when `accumulate`. x [rows, in]
  /// activation, out [rows, out] f32. 1 <= rows <= max_rows of the weights. Both buffers
  /// must have room for padded_rows(rows) rows: products may run at a padded row count.
  virtual void linear(const LinearWeights& weights, const void* x, std::int32_t rows, float* out,
                      bool accumulate) = 0;
  virtual std::int32_t padded_rows(std::int32_t rows) const = 0;
  /// kernels/cpu/rope.h: norms the q and k heads of qkv [rows, (heads + 2 kv_heads) head_dim] f32
  /// (q heads, then k heads, then v heads) as `to` asks and rotates them by positions[r]; q in
  /// place, as tree_attention() takes it, k and v into write_slots[r] of the layer.
  virtual void rope_write_kv(const Pass& pass, float* qkv, const QkvOutput& to) = 0;
  /// kernels/cpu/glu.h: out[r, i] = activation(gate_up[r, i]) * gate_up[r, n + i]; gate_up
  /// [rows, 2n] f32, out [rows, n] activation.
  virtual void glu(Activation activation, const float* gate_up, std::int32_t rows, std::int64_t n,
                   void* out) = 0;
  /// linear() to qkv and rope_write_kv() of it, in one where the device can; what qkv then holds
  /// of k and v is unspecified.
  virtual void qkv_linear(const Pass& pass, const LinearWeights& weights, const void* x,
                          std::int32_t rows, float* qkv, const QkvOutput& to);
  /// linear() to gate_up and glu() of it, in one where the device can; what gate_up then holds
  /// is unspecified. The weights have 2 n outputs: gate, then up.
  virtual void gated_linear(Activation activation, const LinearWeights& weights, const void* x,
                            std::int32_t rows, float* gate_up, void* out);
  /// kernels/cpu/attention.h: DeFT-Flatten attention over the segments of the pass. q is the
  /// first heads * head_dim columns of qkv rows with stride `q_stride`, as rope_write_kv() leaves
  /// them: f32, or on the GPU bf16 at the beginning of each head's columns; out [rows, heads *
  /// head_dim] activation. The rule's window is one of the pass's limits.
  virtual void tree_attention(const Pass& pass, const float* q, std::int64_t q_stride,
                              std::int32_t heads, const AttentionRule& rule, const KvLayout& layout,
                              const void* keys, const void* values, std::int32_t layer,
                              void* out) = 0;
  /// kernels/cpu/gather.h: out[i, :] = x[logit_rows[i], :], f32.
  virtual void gather_logit_rows(const Pass& pass, const float* x, std::int64_t width,
                                 float* out) = 0;
  /// kernels/cpu/soft_cap.h: logits [rows, width] f32 become cap * tanh(logits / cap), in place.
  virtual void soft_cap(float* logits, std::int32_t rows, std::int64_t width, float cap) = 0;
};

class DeviceScope {
 public:
  explicit DeviceScope(const Device& device) : device_(device), former_(device.enter()) {}
  ~DeviceScope() { device_.leave(former_); }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  const Device& device_;
  int former_;
};

struct CpuOptions {
  int threads = 0;             ///< 0: as many as the process may use
  DType compute = DType::f32;  ///< of activations: f32 or bf16
  /// In f32, products with quantised weights, other than fp8, take activations in blocks of 8 bits.
  bool integer_products = false;
  DType kv = DType::f32;  ///< of keys and values
};

/// Settles the instruction set (kernels/cpu/instruction_set.h). bf16 if that cannot multiply it is
/// Error(usage).
std::unique_ptr<Device> make_cpu_device(const CpuOptions& options);

struct CudaOptions {
  int device = 0;  ///< its number among the visible GPUs
  /// Part of the card's memory that this device may allocate.
  double memory_fraction = 0.9;
  std::size_t memory_limit = 0;  ///< if not 0: instead, so many bytes of it
  /// Passes are recorded as CUDA graphs; off: every launch is queued each time (diagnostics).
  bool record = true;
};

/// An NVIDIA GPU, with bf16 weights, activations and KV. Throws Error(failure) if it cannot be used
/// or the CUDA module (kernels/cuda_module.h) cannot, saying why.
std::unique_ptr<Device> make_cuda_device(const CudaOptions& options);
/// Whether make_cuda_device can be expected to succeed with the first visible GPU; `why_not`
/// receives the reason, `present` whether there is a GPU, and a module for it, at all.
bool has_cuda_device(std::string* why_not = nullptr, bool* present = nullptr);
/// Visible GPUs; 0 where has_cuda_device() says no.
int cuda_device_count();

}  // namespace coppice
