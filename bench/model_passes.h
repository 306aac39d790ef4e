// Passes of a model as a step has them, and their matrix products alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "base/error.h"
#include "bench/random_bf16.h"
#include "kernels/device.h"
#include "models/kv/kv_slots.h"
#include "models/loaded_model.h"
#include "sizing/probe_rows.h"

namespace coppice::bench {

/// Weights that every row of a pass multiplies, and those of the head, which has fewer rows.
inline double layer_weights(const ModelConfig& m) {
  const std::int64_t heads = std::int64_t{m.head_dim} * (m.heads + m.kv_heads);
  return static_cast<double>(m.layers * m.hidden_size * (2 * heads + 3 * m.intermediate_size));
}
inline double head_weights(const ModelConfig& m) {
  return static_cast<double>(m.vocab_size * m.hidden_size);
}

/// Queries as a step has them: rows over a prefix, each seeing itself and some of the others; of
/// several texts, which share the rows out equally, each over a prefix of its own.
class Passes {
 public:
  Passes(Model& model, KvPool& pool, std::int32_t prefix, std::int32_t texts = 1)
      : model_(model),
        pool_(pool),
        prefix_(prefix),
        texts_(texts),
        taken_(&pool),
        rows_(model.config()) {
    if (!taken_.take(texts * prefix + model.options().max_logit_rows))
      throw_failure("step: too few KV slots; raise --kv-tokens");
    slots_.assign(taken_.all().begin(), taken_.all().end());
    for (std::int32_t text = 0; text < texts; ++text) {
      for (std::int32_t begin = 0; begin < prefix; begin += 128) {
        rows_.clear();
        rows_.add(slots().subspan(at(text * prefix), at(begin)),
                  slots().subspan(at(text * prefix + begin), at(std::min(128, prefix - begin))), 0);
        queue();
      }
    }
    model.device().synchronize();
  }
  /// Leaves slots in no order, as those of texts that have grown from trees are.
  void shuffle_slots() { std::shuffle(slots_.begin(), slots_.end(), std::mt19937(5)); }

  void set(std::int32_t rows) {
    rows_.clear();
    const std::int32_t texts = std::min(texts_, rows);
    for (std::int32_t text = 0; text < texts; ++text) {
      const std::int32_t first = rows * text / texts, end = rows * (text + 1) / texts;
      rows_.add(slots().subspan(at(text * prefix_), at(prefix_)),
                slots().subspan(at(texts_ * prefix_ + first), at(end - first)), end - first);
    }
  }
  void queue() { model_.forward(rows_.batch(), pool_); }

 private:
  static std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }
  std::span<const KvSlot> slots() const { return slots_; }

  Model& model_;
  KvPool& pool_;
  const std::int32_t prefix_, texts_;
  KvSlots taken_;
  std::vector<KvSlot> slots_;
  ProbeRows rows_;
};

/// The products of a pass one after the other, over random weights of the model's shapes: as many
/// layers as exceed a GPU's cache. Activations are random too, as zeros take less power.
class PassProducts {
 public:
  PassProducts(Device& device, const ModelConfig& m, std::int32_t most_rows)
      : device_(device), layers_(m.layers) {
    const std::int64_t q = std::int64_t{m.heads} * m.head_dim;
    const std::int64_t kv = std::int64_t{m.kv_heads} * m.head_dim;
    const std::int64_t hidden = m.hidden_size, ffn = m.intermediate_size;
    const auto most_outputs = std::max({q + 2 * kv, 2 * ffn, hidden, m.vocab_size});
    const auto values = random_bf16(
        static_cast<std::size_t>(std::max(most_outputs * hidden, hidden * std::max(q, ffn))));
    const auto pack = [&](std::int64_t out, std::int64_t in) {
      const LinearPart part{values.data(), DType::bf16, out};
      return device.pack_linear({&part, 1}, in, {}, most_rows);
    };
    constexpr double more_than_a_cache = 300e6;
    const auto sets =
        static_cast<std::int32_t>(1 + more_than_a_cache * m.layers / (2 * layer_weights(m)));
    for (std::int32_t i = 0; i < std::min(sets, m.layers); ++i) {
      sets_.push_back(
          {pack(q + 2 * kv, hidden), pack(hidden, q), pack(2 * ffn, hidden), pack(hidden, ffn)});
    }
    head_ = pack(m.vocab_size, hidden);
    const auto rows = static_cast<std::size_t>(device.padded_rows(most_rows));
    const std::size_t inputs = rows * static_cast<std::size_t>(std::max({hidden, q, ffn}));
    x_ = device.allocate(inputs * 2, "products' inputs");
    device.upload(x_.data(), random_bf16(inputs).data(), inputs * 2);
    wide_ = device.allocate(rows * static_cast<std::size_t>(most_outputs) * sizeof(float),
                            "products' results");
    hidden_ = device.allocate(rows * static_cast<std::size_t>(hidden) * sizeof(float),
                              "products' results");
  }

  void queue(std::int32_t rows) {
    for (std::int32_t layer = 0; layer < layers_; ++layer) {
      const Layer& weights = sets_[static_cast<std::size_t>(layer) % sets_.size()];
      device_.linear(*weights.qkv, x_.data(), rows, wide_.as<float>(), false);
      device_.linear(*weights.output, x_.data(), rows, hidden_.as<float>(), true);
      device_.linear(*weights.gate_up, x_.data(), rows, wide_.as<float>(), false);
      device_.linear(*weights.down, x_.data(), rows, hidden_.as<float>(), true);
    }
    device_.linear(*head_, x_.data(), rows, wide_.as<float>(), false);
  }

 private:
  struct Layer {
    std::unique_ptr<LinearWeights> qkv, output, gate_up, down;
  };

  Device& device_;
  const std::int32_t layers_;
  std::vector<Layer> sets_;
  std::unique_ptr<LinearWeights> head_;
  DeviceBuffer x_, wide_, hidden_;
};

}  // namespace coppice::bench
