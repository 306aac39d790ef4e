#include "models/graph_model.h"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "base/error.h"

namespace coppice {

struct GraphModel::WorkspaceSizes {
  std::size_t hidden, normed, qkv, attended, gate_up, gated, kept_hidden, kept_attended;
  std::size_t logits = 0, part_logits = 0, staged_logits = 0;

  WorkspaceSizes(const ModelConfig& config, const ModelSlice& slice, const ModelOptions& options,
                 const Device& device) {
    const auto padded = [&](std::int32_t n) {
      return static_cast<std::size_t>(std::max(n, device.padded_rows(n)));
    };
    const std::size_t rows = padded(options.max_rows);
    const std::size_t logit_rows = padded(options.max_logit_rows);
    const std::size_t act = size_of(device.compute_dtype());
    const auto width = static_cast<std::size_t>(config.hidden_size);
    const auto q_width = static_cast<std::size_t>(slice.heads.count * config.head_dim);
    const auto kv_width = static_cast<std::size_t>(slice.kv_heads.count * config.head_dim);
    const auto ffn = static_cast<std::size_t>(slice.ffn.count);
    hidden = rows * width * sizeof(float);
    normed = rows * width * act;
    qkv = rows * (q_width + 2 * kv_width) * sizeof(float);
    attended = rows * q_width * act;
    gate_up = rows * std::max(2 * ffn, width) * sizeof(float);
    gated = rows * ffn * act;
    kept_hidden = logit_rows * width * sizeof(float);
    kept_attended = logit_rows * q_width * act;
    const auto of_tokens = [&](std::int64_t tokens) {
      return logit_rows * static_cast<std::size_t>(tokens) * sizeof(float);
    };
    if (options.shard.rank == 0) logits = of_tokens(config.vocab_size);
    if (options.shard.whole()) return;
    part_logits = of_tokens(slice.vocab.count);
    if (options.shard.rank == 0) staged_logits = logits - part_logits;
  }
  std::size_t total() const {
    return hidden + normed + qkv + attended + gate_up + gated + kept_hidden + kept_attended +
           logits + part_logits + staged_logits;
  }
};

std::size_t GraphModel::workspace_bytes(const ModelConfig& config, const ModelSlice& slice,
                                        const ModelOptions& options, const Device& device) {
  return WorkspaceSizes(config, slice, options, device).total();
}

GraphModel::GraphModel(ModelConfig config, const StoredWeights& stored, Device& device,
                       const ModelOptions& options, const LoadProgress& progress,
                       Communicator* communicator)
    : config_(std::move(config)),
      device_(device),
      options_(options),
      communicator_(communicator),
      quantised_formats_(stored.quantised_formats()),
      has_integers_(stored.has_integers()),
      slice_(slice_of(config_, borders_of(config_, stored), options.shard)),
      vocab_widths_(vocab_widths(config_, options.shard.ranks)),
      weights_(load_weights(config_, stored, slice_, device, options, progress)) {
  for (const RopeSpec& rope : config_.ropes) {
    ropes_.push_back(make_rope_table(rope, options_.max_positions, device));
  }
  const WorkspaceSizes sizes(config_, slice_, options_, device_);
  work_.hidden = device_.allocate(sizes.hidden, "hidden states");
  work_.normed = device_.allocate(sizes.normed, "normed states");
  work_.qkv = device_.allocate(sizes.qkv, "queries, keys and values");
  work_.attended = device_.allocate(sizes.attended, "attention output");
  work_.gate_up = device_.allocate(sizes.gate_up, "gate and up projections");
  work_.gated = device_.allocate(sizes.gated, "gated states");
  work_.kept_hidden = device_.allocate(sizes.kept_hidden, "kept hidden states");
  work_.kept_attended = device_.allocate(sizes.kept_attended, "kept attention output");
  if (sizes.logits > 0) work_.logits = device_.allocate(sizes.logits, "logits");
  if (sizes.part_logits > 0) {
    work_.part_logits = device_.allocate(sizes.part_logits, "logits of a rank");
  }
  if (sizes.staged_logits > 0) {
    work_.staged_logits = device_.allocate(sizes.staged_logits, "logits of other ranks");
  }
  std::set<std::int32_t> windows;
  bool soft_caps = false;
  for (const LayerSpec& layer : config_.layer_specs) {
    windows.insert(layer.attention.window);
    soft_caps = soft_caps || layer.attention.soft_cap > 0.0f;
  }
  pass_ = device_.make_pass({options_.max_rows,
                             options_.max_logit_rows,
                             options_.max_kv_tokens,
                             {static_cast<std::int32_t>(slice_.heads.count),
                              static_cast<std::int32_t>(slice_.kv_heads.count), config_.head_dim},
                             {windows.begin(), windows.end()},
                             soft_caps,
                             weights_.stream != nullptr,
                             !options_.shard.whole()});
}

KvLayout GraphModel::kv_layout(std::int32_t slots, std::int32_t page_size) const {
  if (slots < 1 || page_size < 1) {
    throw_failure(
        cat("KV pool of ", slots, " slots in pages of ", page_size, ": both must be at least 1"));
  }
  KvLayout layout;
  layout.layers = config_.layers;
  layout.kv_heads = static_cast<std::int32_t>(slice_.kv_heads.count);
  layout.head_dim = config_.head_dim;
  layout.page_size = page_size;
  layout.pages = static_cast<std::int32_t>((std::int64_t{slots} + page_size - 1) / page_size);
  return layout;
}

const float* GraphModel::forward(const ForwardBatch& batch, KvPool& pool, PassEpilogue* epilogue) {
  check(batch, pool);
  return run(batch, pool, epilogue);
}

const float* GraphModel::run(const ForwardBatch& batch, KvPool& pool, PassEpilogue* epilogue) {
  const int rank = options_.shard.rank;
  const PassShape shape = pass_->begin(batch);
  const bool gathers = batch.logit_rows.size() < batch.tokens.size();
  const PassVariant variant{pool.keys(rank), pool.values(rank), pool.layout(),
                            epilogue == nullptr ? 0 : epilogue->id(), gathers};
  const auto body = [&] { queue(shape, gathers, pool, epilogue); };
  pass_->run(variant, std::cref(body));  // a reference, so that std::function allocates nothing
  return shape.logit_rows == 0 || !is_first() ? nullptr : work_.logits.as<float>();
}

void GraphModel::queue(const PassShape& shape, bool gathers, KvPool& pool, PassEpilogue* epilogue) {
  const std::int64_t width = config_.hidden_size;
  const auto heads = static_cast<std::int32_t>(slice_.heads.count);
  const int rank = options_.shard.rank;
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
                       {heads,
                        &rope_of(spec),
                        pool.layout(),
                        pool.keys(rank),
                        pool.values(rank),
                        index,
                        {layer.query_norm, layer.key_norm, config_.rms_norm_eps}});
    // After the last layer's keys and values, only rows with logits go on.
    if (last && shape.logit_rows == 0) {
      if (visits) weights_.stream->leave(layer.visit);
      return;
    }
    device_.tree_attention(*pass_, qkv, qkv_width(), heads, spec.attention, pool.layout(),
                           pool.keys(rank), pool.values(rank), index, work_.attended.data());
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
  queue_logits(rows);
  if (epilogue != nullptr && is_first()) epilogue->queue(work_.logits.as<float>(), rows);
}

// To the first rank's logits.
void GraphModel::queue_logits(std::int32_t rows) {
  const bool whole = options_.shard.whole();
  float* const part = whole ? work_.logits.as<float>() : work_.part_logits.as<float>();
  device_.linear(*weights_.head, work_.normed.data(), rows, part, false);
  if (config_.final_soft_cap > 0.0f) {
    device_.soft_cap(part, rows, slice_.vocab.count, config_.final_soft_cap);
  }
  if (whole) return;
  communicator_->gather_columns(part, vocab_widths_, rows, work_.staged_logits.as<float>(),
                                work_.logits.as<float>());
}

void GraphModel::normalise(const float* hidden, const float* weight, std::int32_t rows) {
  device_.rms_norm(hidden, weight, config_.rms_norm_eps, rows, config_.hidden_size,
                   work_.normed.data());
}

// hidden += W x, or += norm(W x); then its norm by `next_norm`, for the next product. Of ranks each
// has a part of W x, and the first one's residual stream takes part in the sum, which leaves the
// same one on all.
void GraphModel::add_product(const LinearWeights& weights, const void* x, const float* norm,
                             const float* next_norm, float* hidden, std::int32_t rows) {
  if (norm == nullptr) {
    device_.linear(weights, x, rows, hidden, is_first());
    sum_over_ranks(hidden, rows);
    return normalise(hidden, next_norm, rows);
  }
  float* added = work_.gate_up.as<float>();
  device_.linear(weights, x, rows, added, false);
  sum_over_ranks(added, rows);
  device_.add_rms_norm_then_norm(added, norm, next_norm, config_.rms_norm_eps, rows,
                                 config_.hidden_size, hidden, work_.normed.data());
}

void GraphModel::sum_over_ranks(float* values, std::int32_t rows) {
  if (!options_.shard.whole()) communicator_->sum(values, rows * config_.hidden_size);
}

void GraphModel::keep_logit_rows() {
  device_.gather_logit_rows(*pass_, work_.hidden.as<float>(), config_.hidden_size,
                            work_.kept_hidden.as<float>());
  // Rows are moved as bits, so activations of half the width pass as f32 (q_width is even).
  const auto floats = static_cast<std::int64_t>(static_cast<std::size_t>(q_width()) *
                                                size_of(device_.compute_dtype()) / sizeof(float));
  device_.gather_logit_rows(*pass_, work_.attended.as<float>(), floats,
                            work_.kept_attended.as<float>());
}

void GraphModel::check(const ForwardBatch& batch, const KvPool& pool) const {
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
  if (kv_tokens > static_cast<std::size_t>(options_.max_kv_tokens)) {
    throw_failure(cat("forward pass: ", kv_tokens, " KV tokens, but this model was loaded for ",
                      options_.max_kv_tokens));
  }
  if (layout.layers != config_.layers || layout.kv_heads != slice_.kv_heads.count ||
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
                        layout.slots(), " is seen by rows [", segment.q_begin, ", ", segment.q_end,
                        ") of ", rows));
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
      throw_failure(cat("forward pass: logit row ", row, " of ", rows, " rows; they must ascend"));
    }
    least = row + 1;
  }
}

}  // namespace coppice
