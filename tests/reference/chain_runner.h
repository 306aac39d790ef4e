// Runs a model over plain sequences and trees, for tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <vector>

#include "kernels/attention_plan.h"
#include "models/model.h"

namespace coppice::testing {

struct ChainRunner {
  ChainRunner(const std::filesystem::path& dir, std::unique_ptr<Device> on, ModelOptions options,
              std::int32_t slots = 200, std::int32_t page_size = 4)
      : device(std::move(on)),
        model(Model::load(dir, *device, options)),
        pool(*device, model->kv_layout(slots, page_size)) {}

  /// Split over the devices.
  ChainRunner(const std::filesystem::path& dir, std::vector<std::unique_ptr<Device>> on,
              ModelOptions options, std::int32_t slots = 200, std::int32_t page_size = 4)
      : ChainRunner(
            std::move(on),
            [&](std::span<Device* const> all) { return Model::load(dir, all, options); }, slots,
            page_size) {}

  /// Likewise, as a test makes it.
  using Load = std::function<std::unique_ptr<Model>(std::span<Device* const> by_rank)>;
  ChainRunner(std::vector<std::unique_ptr<Device>> on, const Load& load, std::int32_t slots = 200,
              std::int32_t page_size = 4)
      : further(std::move(on)),
        device(std::move(further.front())),
        model(load(by_rank())),
        pool(model->devices(), model->kv_layout(slots, page_size)) {}

  std::vector<Device*> by_rank() const {
    std::vector<Device*> all = {device.get()};
    for (const auto& other : further) {
      if (other != nullptr) all.push_back(other.get());
    }
    return all;
  }

  /// Runs `tokens` after a prefix whose positions 0, 1, ... lie in the slots `prefix`; returns
  /// their slots. `logits` then holds the rows wanted, [rows][vocab].
  std::vector<KvSlot> chain(const std::vector<TokenId>& tokens, const std::vector<KvSlot>& prefix,
                            const std::vector<std::int32_t>& logit_rows) {
    std::vector<KvSlot> slots(tokens.size());
    if (!pool.take(slots)) throw std::logic_error("the test's pool is too small");
    const auto rows = static_cast<std::int32_t>(tokens.size());
    std::vector<KvSegment> seen = {{prefix, 0, rows, true, 0}};
    std::vector<std::int32_t> positions;
    for (std::int32_t r = 0; r < rows; ++r) {
      seen.push_back({std::span(slots).subspan(static_cast<std::size_t>(r), 1), r, rows, false,
                      static_cast<std::int32_t>(prefix.size()) + r});
      positions.push_back(static_cast<std::int32_t>(prefix.size()) + r);
    }
    run(tokens, positions, slots, seen, logit_rows);
    return slots;
  }

  void run(const std::vector<TokenId>& tokens, const std::vector<std::int32_t>& positions,
           const std::vector<KvSlot>& slots, const std::vector<KvSegment>& seen,
           const std::vector<std::int32_t>& logit_rows) {
    const float* rows = model->forward({tokens, positions, slots, seen, logit_rows}, pool);
    const auto vocab = static_cast<std::size_t>(model->config().vocab_size);
    device->synchronize();
    logits.assign(logit_rows.size(), std::vector<float>(vocab));
    for (std::size_t i = 0; i < logits.size(); ++i) {
      device->download(logits[i].data(), rows + i * vocab, vocab * sizeof(float));
    }
    returned_null = rows == nullptr;
  }

  std::vector<std::unique_ptr<Device>> further;  ///< null: it has moved to `device`
  std::unique_ptr<Device> device;
  std::unique_ptr<Model> model;
  KvPool pool;
  std::vector<std::vector<float>> logits;
  bool returned_null = false;
};

/// Bound on how far a pass's logits may be from exact ones, from its arithmetic.
///
/// `unit` is the unit roundoff of the activations (2^-24, or 2^-9 for bf16). Each of the 4
/// products of a layer, and the head, rounds its inputs by at most `unit`, relatively; a sum
/// over many independent terms errs by about `unit` times the size of what it adds to. f32 sums
/// of K terms in sequence add sqrt(K) / 2 roundings of their own; weights that were rounded to
/// bf16 double the variance. The errors of P = 4 layers + 1 products add in squares, so a logit
/// errs by sqrt(P) * unit * rms (one deviation). Norms behind products, of heads and of what a
/// layer adds, round what they bring once more: they count as products. Attention and SwiGLU
/// magnify: scores of size s turn a relative error e into s e, with s about 2; a rotation that also
/// multiplies queries and keys by a (yarn, longrope) makes that 2 a^2. Six deviations leave one in
/// 1e9 logits. Keys and values stored in 16 bits (unit roundoff 2^-9 for bf16, 2^-12 for
/// f16) are inputs of products that are rounded once more.
inline double logit_tolerance(const ModelConfig& config, DType compute, double rms,
                              DType kv = DType::f32) {
  double products = 4.0 * config.layers + 1.0;
  for (const LayerSpec& layer : config.layer_specs) {
    products += (layer.head_norms ? 2.0 : 0.0) + (layer.output_norms ? 2.0 : 0.0);
  }
  const auto widest = static_cast<double>(std::max({config.hidden_size, config.intermediate_size,
                                                    std::int64_t{config.heads} * config.head_dim}));
  const double f32 = 0x1.0p-24 * (1.0 + std::sqrt(widest) / 2.0);
  const double unit = compute == DType::f32 ? f32 : 0x1.0p-9 * std::sqrt(2.0);
  const double stored = kv == DType::f32 ? 0.0 : kv == DType::bf16 ? 0x1.0p-9 : 0x1.0p-12;
  double scores = 2.0;
  for (const RopeSpec& rope : config.ropes) {
    scores = std::max(scores, 2.0 * rope.attention_factor * rope.attention_factor);
  }
  return scores * 6.0 * std::sqrt(products) * (unit + stored) * rms;
}

/// How far a row of logits is from exact ones at most, in these bounds; beyond all of them if a
/// logit is not finite.
inline double logit_error(std::span<const float> logits, std::span<const double> exact,
                          const ModelConfig& config, DType compute, DType kv = DType::f32) {
  double squares = 0.0, worst = 0.0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    squares += exact[i] * exact[i];
    const double error = std::abs(static_cast<double>(logits[i]) - exact[i]);
    worst = std::max(worst, std::isfinite(error) ? error : HUGE_VAL);
  }
  const double rms = std::sqrt(squares / static_cast<double>(exact.size()));
  return worst / logit_tolerance(config, compute, rms, kv);
}

/// All rows of a pass, as those whose logits are wanted.
inline std::vector<std::int32_t> all_rows(std::size_t count) {
  std::vector<std::int32_t> rows(count);
  for (std::size_t r = 0; r < count; ++r) rows[r] = static_cast<std::int32_t>(r);
  return rows;
}

}  // namespace coppice::testing
