// A model's logits in double, one plain sequence at a time.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "base/types.h"
#include "kernels/weight_format.h"
#include "models/config.h"

namespace coppice::testing {

/// Every parameter as stored, widened; rotary frequencies in f32 as transformers makes them
/// (they belong to the model), all other arithmetic in double. No cache, no tree, no padding.
class ModelReference {
 public:
  /// `positions`: as many as the model is loaded for, which LongRoPE's factors depend on.
  explicit ModelReference(const std::filesystem::path& dir, std::int32_t positions = 8192,
                          std::optional<WeightFormat> rounding = std::nullopt);

  std::int64_t vocab_size() const { return config_.vocab_size; }
  /// Logits after each token of the sequence, [tokens.size()][vocab].
  std::vector<std::vector<double>> logits(std::span<const TokenId> tokens) const;

 private:
  using Vector = std::vector<double>;
  struct Linear {
    Vector weight, bias;
    Vector apply(const Vector& x) const;
  };
  struct Layer {
    LayerSpec spec;
    Vector attention_norm, query_norm, key_norm, attended_norm, ffn_norm, fed_norm;
    Linear q, k, v, o, gate, up, down;
  };

  Vector normed(const Vector& x, const Vector& w) const;
  /// Each head by itself; an empty w: no norm.
  Vector heads_normed(const Vector& x, const Vector& w) const;
  void rotate(Vector& x, std::int32_t rope, std::size_t position) const;
  /// What each row takes of the values of rows up to it.
  Vector attend(const Layer& layer, const Vector& q, const std::vector<Vector>& keys,
                const std::vector<Vector>& values) const;

  ModelConfig config_;
  std::vector<std::vector<float>> frequencies_;  ///< of each rotary embedding
  double embedding_scale_ = 1.0;
  std::vector<Vector> embedding_;
  std::vector<Layer> layers_;
  Vector final_norm_;
  Linear head_;
};

}  // namespace coppice::testing
