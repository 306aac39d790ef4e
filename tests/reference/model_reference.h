// A Llama-family model's logits in double, one plain sequence at a time.
#pragma once

#include <filesystem>
#include <span>
#include <vector>

#include "base/types.h"

namespace coppice::testing {

/// Every parameter as stored, widened; rotary frequencies in f32 as transformers makes them
/// (they belong to the model), all other arithmetic in double. No cache, no tree, no padding.
class ModelReference {
 public:
  explicit ModelReference(const std::filesystem::path& dir);

  std::int64_t vocab_size() const { return vocab_; }
  /// Logits after each token of the sequence, [tokens.size()][vocab].
  std::vector<std::vector<double>> logits(std::span<const TokenId> tokens) const;

 private:
  struct Linear {
    std::vector<double> weight, bias;
    std::vector<double> apply(const std::vector<double>& x) const;
  };
  struct Layer {
    std::vector<double> attention_norm, ffn_norm;
    Linear q, k, v, o, gate, up, down;
  };

  std::vector<double> normed(const std::vector<double>& x, const std::vector<double>& w) const;
  void rotate(std::vector<double>& x, std::size_t position) const;

  std::size_t heads_ = 0, kv_heads_ = 0, head_dim_ = 0;
  std::int64_t vocab_ = 0;
  double epsilon_ = 0.0;
  std::vector<float> frequencies_;
  std::vector<std::vector<double>> embedding_;
  std::vector<Layer> layers_;
  std::vector<double> final_norm_;
  Linear head_;
};

}  // namespace coppice::testing
