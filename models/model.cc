#include "models/model.h"

#include <algorithm>
#include <array>
#include <new>
#include <set>
#include <string>

#include "base/error.h"
#include "base/mebibytes.h"
#include "base/memory_limit.h"
#include "models/layer_sums.h"
#include "models/model_folder.h"
#include "models/rope_table.h"
#include "models/weights.h"

namespace coppice {
namespace {

constexpr std::int32_t default_positions = 8192;

/// Device memory of one pass, [rows, width] each, rows padded as products want them. act buffers
/// hold the device's activation type, the others f32.
struct Workspace {
  DeviceBuffer hidden;         ///< residual stream
  DeviceBuffer normed;         ///< act: input of a product
  DeviceBuffer qkv;            ///< q heads, k heads, v heads
  DeviceBuffer attended;       ///< act
  DeviceBuffer gate_up;        ///< gate, then up; or what a normed product adds to `hidden`
  DeviceBuffer gated;          ///< act
  DeviceBuffer kept_hidden;    ///< rows of `hidden` whose logits are wanted
  DeviceBuffer kept_attended;  ///< act: likewise of `attended`
  DeviceBuffer logits;         ///< [logit rows, vocab]
};

struct WorkspaceSizes {
  std::size_t hidden, normed, qkv, attended, gate_up, gated, kept_hidden, kept_attended, logits;

  WorkspaceSizes(const ModelConfig& config, const ModelOptions& options, const Device& device) {
    const auto padded = [&](std::int32_t n) {
      return static_cast<std::size_t>(std::max(n, device.padded_rows(n)));
    };
    const std::size_t rows = padded(options.max_rows);
    const std::size_t logit_rows = padded(options.max_logit_rows);
    const std::size_t act = size_of(device.compute_dtype());
    const auto width = static_cast<std::size_t>(config.hidden_size);
    const auto q_width =
        static_cast<std::size_t>(config.heads) * static_cast<std::size_t>(config.head_dim);
    const auto kv_width =
        static_cast<std::size_t>(config.kv_heads) * static_cast<std::size_t>(config.head_dim);
    const auto ffn = static_cast<std::size_t>(config.intermediate_size);
    hidden = rows * width * sizeof(float);
    normed = rows * width * act;
    qkv = rows * (q_width + 2 * kv_width) * sizeof(float);
    attended = rows * q_width * act;
    gate_up = rows * std::max(2 * ffn, width) * sizeof(float);
    gated = rows * ffn * act;
    kept_hidden = logit_rows * width * sizeof(float);
    kept_attended = logit_rows * q_width * act;
    logits = logit_rows * static_cast<std::size_t>(config.vocab_size) * sizeof(float);
  }
  std::size_t total() const {
    return hidden + normed + qkv + attended + gate_up + gated + kept_hidden + kept_attended +
           logits;
  }
};

class GraphModel final : public Model {
 public:
  GraphModel(ModelConfig config, const StoredWeights& stored, Device& device,
             const ModelOptions& options, const LoadProgress& progress)
      : config_(std::move(config)),
        device_(device),
        options_(options),
        quantised_formats_(stored.quantised_formats()),
        has_integers_(stored.has_integers()),
        weights_(load_weights(config_, stored, device, options, progress)) {
    for (const RopeSpec& rope : config_.ropes) {
      ropes_.push_back(make_rope_table(rope, options_.max_positions, device));
    }
    const WorkspaceSizes sizes(config_, options_, device_);
    work_.hidden = device_.allocate(sizes.hidden, "hidden states");
    work_.normed = device_.allocate(sizes.normed, "normed states");
    work_.qkv = device_.allocate(sizes.qkv, "queries, keys and values");
    work_.attended = device_.allocate(sizes.attended, "attention output");
    work_.gate_up = device_.allocate(sizes.gate_up, "gate and up projections");
    work_.gated = device_.allocate(sizes.gated, "gated states");
    work_.kept_hidden = device_.allocate(sizes.kept_hidden, "kept hidden states");
    work_.kept_attended = device_.allocate(sizes.kept_attended, "kept attention output");
    work_.logits = device_.allocate(sizes.logits, "logits");
    std::set<std::int32_t> windows;
    bool soft_caps = false;
    for (const LayerSpec& layer : config_.layer_specs) {
      windows.insert(layer.attention.window);
      soft_caps = soft_caps || layer.attention.soft_cap > 0.0f;
    }
    pass_ = device_.make_pass({options_.max_rows,
                               options_.max_logit_rows,
                               kv_capacity(),
                               {config_.heads, config_.kv_heads, config_.head_dim},
                               {windows.begin(), windows.end()},
                               soft_caps,
                               weights_.stream != nullptr});
  }

  const ModelConfig& config() const override { return config_; }
  Device& device() const override { return device_; }
  const ModelOptions& options() const override { return options_; }
  std::size_t weight_bytes_read() const override { return weights_.bytes_read; }
  std::span<const std::size_t> layer_blocks() const override { return weights_.layer_blocks; }
  std::size_t streamed_bytes() const override { return weights_.streamed_bytes; }
  std::string quantised_formats() const override { return quantised_formats_; }
  bool has_integers() const override { return has_integers_; }
  std::int32_t max_positions() const override { return options_.max_positions; }

  KvLayout kv_layout(std::int32_t slots, std::int32_t page_size) const override {
    if (slots < 1 || page_size < 1) {
      throw_failure(
          cat("KV pool of ", slots, " slots in pages of ", page_size, ": both must be at least 1"));
    }
    KvLayout layout;
    layout.layers = config_.layers;
    layout.kv_heads = config_.kv_heads;
    layout.head_dim = config_.head_dim;
    layout.page_size = page_size;
    layout.pages = static_cast<std::int32_t>((std::int64_t{slots} + page_size - 1) / page_size);
    return layout;
  }

  const float* forward(const ForwardBatch& batch, KvPool& pool, PassEpilogue* epilogue) override {
    check(batch, pool);
    const PassShape shape = pass_->begin(batch);
    const bool gathers = batch.logit_rows.size() < batch.tokens.size();
    const PassVariant variant{pool.keys(), pool.values(), pool.layout(),
                              epilogue == nullptr ? 0 : epilogue->id(), gathers};
    const auto body = [&] { queue(shape, gathers, pool, epilogue); };
    pass_->run(variant, std::cref(body));  // a reference, so that std::function allocates nothing
    return shape.logit_rows == 0 ? nullptr : work_.logits.as<float>();
  }

 private:
  std::int64_t q_width() const { return std::int64_t{config_.heads} * config_.head_dim; }
  std::int64_t qkv_width() const {
    return (std::int64_t{config_.heads} + 2 * config_.kv_heads) * config_.head_dim;
  }
  std::int32_t kv_capacity() const { return options_.max_kv_tokens; }
  const RopeTable& rope_of(const LayerSpec& layer) const {
    return layer.rope == LayerSpec::no_rope ? no_rope_
                                            : ropes_[static_cast<std::size_t>(layer.rope)];
  }

  void queue(const PassShape& shape, bool gathers, KvPool& pool, PassEpilogue* epilogue) {
    const std::int64_t width = config_.hidden_size;
    std::int32_t rows = shape.rows;
    float* hidden = work_.hidden.as<float>();
    const void* attended = work_.attended.data();
    device_.embed(*pass_, weights_.embedding, width, weights_.embedding_scale, hidden);
    normalise(hidden, weights_.layers.front().attention_norm, rows);
    for (std::int32_t index = 0; index < config_.layers; ++index) {
      const LayerSpec& spec = config_.layer_specs[static_cast<std::size_t>(index)];
      const LayerWeights& layer = weights_.layers[static_cast<std::size_t>(index)];
      const bool last = index + 1 == config_.layers;
      const bool visits = layer.visit >= 0;
      if (visits) weights_.stream->enter(layer.visit);
      float* qkv = work_.qkv.as<float>();
      device_.qkv_linear(*pass_, *layer.qkv, work_.normed.data(), rows, qkv,
                         {config_.heads,
                          &rope_of(spec),
                          pool.layout(),
                          pool.keys(),
                          pool.values(),
                          index,
                          {layer.query_norm, layer.key_norm, config_.rms_norm_eps}});
      // After the last layer's keys and values, only rows with logits go on.
      if (last && shape.logit_rows == 0) {
        if (visits) weights_.stream->leave(layer.visit);
        return;
      }
      device_.tree_attention(*pass_, qkv, qkv_width(), config_.heads, spec.attention, pool.layout(),
                             pool.keys(), pool.values(), index, work_.attended.data());
      if (last && gathers) {
        keep_logit_rows();
        hidden = work_.kept_hidden.as<float>();
        attended = work_.kept_attended.data();
        rows = shape.logit_rows;
      }
      add_product(*layer.output, attended, layer.attended_norm, layer.ffn_norm, hidden, rows);
      device_.gated_linear(spec.activation, *layer.gate_up, work_.normed.data(), rows,
                           work_.gate_up.as<float>(), work_.gated.data());
      const std::size_t next = static_cast<std::size_t>(index) + 1;
      const float* next_norm = last ? weights_.final_norm : weights_.layers[next].attention_norm;
      add_product(*layer.down, work_.gated.data(), layer.fed_norm, next_norm, hidden, rows);
      if (visits) weights_.stream->leave(layer.visit);
    }
    float* logits = work_.logits.as<float>();
    device_.linear(*weights_.head, work_.normed.data(), rows, logits, false);
    if (config_.final_soft_cap > 0.0f) {
      device_.soft_cap(logits, rows, config_.vocab_size, config_.final_soft_cap);
    }
    if (epilogue != nullptr) epilogue->queue(logits, rows);
  }

  void normalise(const float* hidden, const float* weight, std::int32_t rows) {
    device_.rms_norm(hidden, weight, config_.rms_norm_eps, rows, config_.hidden_size,
                     work_.normed.data());
  }

  /// hidden += W x, or += norm(W x); then its norm by `next_norm`, for the next product.
  void add_product(const LinearWeights& weights, const void* x, const float* norm,
                   const float* next_norm, float* hidden, std::int32_t rows) {
    if (norm == nullptr) {
      device_.linear(weights, x, rows, hidden, true);
      return normalise(hidden, next_norm, rows);
    }
    float* added = work_.gate_up.as<float>();
    device_.linear(weights, x, rows, added, false);
    device_.add_rms_norm_then_norm(added, norm, next_norm, config_.rms_norm_eps, rows,
                                   config_.hidden_size, hidden, work_.normed.data());
  }

  void keep_logit_rows() {
    device_.gather_logit_rows(*pass_, work_.hidden.as<float>(), config_.hidden_size,
                              work_.kept_hidden.as<float>());
    // Rows are moved as bits, so activations of half the width pass as f32 (q_width is even).
    const auto floats = static_cast<std::int64_t>(static_cast<std::size_t>(q_width()) *
                                                  size_of(device_.compute_dtype()) / sizeof(float));
    device_.gather_logit_rows(*pass_, work_.attended.as<float>(), floats,
                              work_.kept_attended.as<float>());
  }

  void check(const ForwardBatch& batch, const KvPool& pool) const {
    const std::size_t rows = batch.tokens.size();
    const KvLayout& layout = pool.layout();
    if (rows == 0 || rows > static_cast<std::size_t>(options_.max_rows)) {
      throw_failure(cat("forward pass: ", rows, " rows, but this model was loaded for 1 to ",
                        options_.max_rows));
    }
    if (batch.positions.size() != rows || batch.write_slots.size() != rows) {
      throw_failure(cat("forward pass: ", rows, " tokens, but ", batch.positions.size(),
                        " positions and ", batch.write_slots.size(), " slots"));
    }
    std::size_t kv_tokens = 0;
    for (const KvSegment& segment : batch.segments) kv_tokens += segment.slots.size();
    if (kv_tokens > static_cast<std::size_t>(kv_capacity())) {
      throw_failure(cat("forward pass: ", kv_tokens, " KV tokens, but this model was loaded for ",
                        kv_capacity()));
    }
    if (layout.layers != config_.layers || layout.kv_heads != config_.kv_heads ||
        layout.head_dim != config_.head_dim) {
      throw_failure("forward pass: the KV pool was made for another model");
    }
    // In depth-first order intervals begin in ascending order.
    std::int32_t seeing = 0;
    for (const KvSegment& segment : batch.segments) {
      if (segment.slots.empty()) continue;
      const auto wrong = std::find_if(
          segment.slots.begin(), segment.former ? segment.slots.begin() : segment.slots.end(),
          [&](KvSlot slot) { return slot < 0 || slot >= layout.slots(); });
      const bool inside = segment.former || wrong == segment.slots.end();
      if (!inside || segment.q_begin < 0 || segment.q_begin > segment.q_end ||
          segment.q_end > static_cast<std::int32_t>(rows)) {
        throw_failure(cat("forward pass: KV slot ", inside ? segment.slots.front() : *wrong, " of ",
                          layout.slots(), " is seen by rows [", segment.q_begin, ", ",
                          segment.q_end, ") of ", rows));
      }
      if (segment.q_begin <= seeing) seeing = std::max(seeing, segment.q_end);
    }
    if (seeing < static_cast<std::int32_t>(rows)) {
      throw_failure(cat("forward pass: row ", seeing, " of ", rows, " sees no KV token"));
    }
    for (std::size_t r = 0; r < rows; ++r) {
      if (batch.tokens[r] < 0 || batch.tokens[r] >= config_.vocab_size) {
        throw_failure(cat("forward pass: token ", batch.tokens[r], " is outside the vocabulary of ",
                          config_.vocab_size));
      }
      if (batch.positions[r] < 0 || batch.positions[r] >= options_.max_positions) {
        throw_failure(cat("forward pass: position ", batch.positions[r],
                          " is outside the context of ", options_.max_positions, " tokens"));
      }
      if (batch.write_slots[r] < 0 || batch.write_slots[r] >= layout.slots()) {
        throw_failure(cat("forward pass: slot ", batch.write_slots[r], " is outside the pool of ",
                          layout.slots()));
      }
    }
    if (batch.logit_rows.size() > static_cast<std::size_t>(options_.max_logit_rows)) {
      throw_failure(cat("forward pass: logits of ", batch.logit_rows.size(),
                        " rows, but this model was loaded for ", options_.max_logit_rows));
    }
    std::int32_t least = 0;
    for (const std::int32_t row : batch.logit_rows) {
      if (row < least || static_cast<std::size_t>(row) >= rows) {
        throw_failure(
            cat("forward pass: logit row ", row, " of ", rows, " rows; they must ascend"));
      }
      least = row + 1;
    }
  }

  const ModelConfig config_;
  Device& device_;
  const ModelOptions options_;
  const std::string quantised_formats_;
  const bool has_integers_;
  const ModelWeights weights_;
  std::vector<RopeTable> ropes_;
  const RopeTable no_rope_;
  Workspace work_;
  std::unique_ptr<Pass> pass_;
};

ModelOptions resolved(const ModelOptions& options, const ModelConfig& config) {
  ModelOptions out = options;
  if (out.max_rows < 1 || out.max_logit_rows < 0 || out.max_positions < 0 ||
      out.max_kv_tokens < 0) {
    throw_failure(cat("model options: max_rows ", out.max_rows, ", max_logit_rows ",
                      out.max_logit_rows, ", max_positions ", out.max_positions, ", max_kv_tokens ",
                      out.max_kv_tokens, " must not be negative, max_rows at least 1"));
  }
  if (out.max_logit_rows == 0) out.max_logit_rows = out.max_rows;
  out.max_logit_rows = std::min(out.max_logit_rows, out.max_rows);
  if (out.max_positions == 0) out.max_positions = default_positions;
  out.max_positions = std::min(out.max_positions, config.context_length);
  // Every token of a text has a position, and several tree tokens may share one.
  if (out.max_kv_tokens == 0) out.max_kv_tokens = out.max_positions + out.max_rows;
  return out;
}

// What GraphModel::queue() multiplies by. Layers have equal shapes.
std::array<ExpectedProduct, 5> products_of(const ModelConfig& config, const ModelOptions& options) {
  const std::int64_t hidden = config.hidden_size, ffn = config.intermediate_size;
  const std::int64_t q = std::int64_t{config.heads} * config.head_dim;
  const std::int64_t kv = std::int64_t{config.kv_heads} * config.head_dim;
  const bool accumulate = !config.layer_specs.front().output_norms;
  const std::int32_t rows = options.max_rows;
  return {{{hidden, q + 2 * kv, rows, config.qkv_bias, false},
           {q, hidden, rows, config.output_bias, accumulate},
           {hidden, 2 * ffn, rows, config.mlp_bias, false},
           {ffn, hidden, rows, config.mlp_bias, accumulate},
           {hidden, config.vocab_size, options.max_logit_rows, false, false}}};
}

void require_memory(const std::filesystem::path& dir, const ModelConfig& config,
                    const StoredWeights& stored, const ModelOptions& options,
                    const Device& device) {
  if (!device.shares_host_memory()) return;  // its own allocator says what is free
  std::int64_t weights = packed_bytes(stored, device.compute_dtype());
  if (!options.stream_folder.empty()) {
    const auto blocks = packed_layer_bytes(stored, device.compute_dtype(), config.layers);
    weights += static_cast<std::int64_t>(
                   layer_bytes(blocks, options.resident_layers, options.stream_places)) -
               static_cast<std::int64_t>(layer_bytes(blocks, -1, 0));
  }
  std::int64_t rope_bytes = 0;
  for (const RopeSpec& rope : config.ropes) {
    rope_bytes += static_cast<std::int64_t>(rope_table_bytes(rope, options.max_positions));
  }
  const auto workspace =
      static_cast<std::int64_t>(WorkspaceSizes(config, options, device).total()) + rope_bytes;
  const std::int64_t available = available_memory();
  if (weights + workspace > available) {
    throw_failure(cat(dir.string(), ": too little memory: weights ", mebibytes(weights),
                      " + workspace ", mebibytes(workspace), " = ", mebibytes(weights + workspace),
                      ", available ", mebibytes(available),
                      "; free memory or choose a smaller model"));
  }
}

[[noreturn]] void refuse_lack_of_memory(const std::filesystem::path& dir) {
  throw_failure(cat(dir.string(),
                    ": memory ran out while the model was loaded; free memory or choose a smaller "
                    "model"));
}

}  // namespace

std::string compute_name(const Model& model) {
  const bool integers = model.device().integer_products() && model.has_integers();
  return integers ? "int8" : name_of(model.device().compute_dtype());
}

void Model::announce(const std::filesystem::path& dir, Device& device,
                     const ModelOptions& options) {
  try {
    const ModelConfig config = read_config(dir);
    if (!config.unsupported.empty()) return;
    device.expect_products(products_of(config, resolved(options, config)));
  } catch (const Error&) {
    // load() says what is wrong.
  }
}

std::unique_ptr<Model> Model::load(const std::filesystem::path& dir, Device& device,
                                   const ModelOptions& options, const LoadProgress& progress) {
  try {
    return load_opened(ModelFiles(dir, options.rounding), device, options, progress);
  } catch (const std::bad_alloc&) {
    refuse_lack_of_memory(dir);
  }
}

std::unique_ptr<Model> load_opened(const ModelFiles& files, Device& device,
                                   const ModelOptions& options, const LoadProgress& progress) {
  try {
    ModelConfig config = files.config;
    const ModelOptions limits = resolved(options, config);
    for (LayerSpec& layer : config.layer_specs) {
      // Windows that no text outgrows need no plan of their own.
      if (layer.attention.window >= limits.max_positions) layer.attention.window = 0;
    }
    require_memory(files.dir, config, files.weights, limits, device);
    return std::make_unique<GraphModel>(std::move(config), files.weights, device, limits, progress);
  } catch (const std::bad_alloc&) {
    refuse_lack_of_memory(files.dir);
  }
}

}  // namespace coppice
