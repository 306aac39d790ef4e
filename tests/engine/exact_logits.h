// The reference's logits after a text, and how near to them a device must come.
#pragma once

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <span>
#include <vector>

#include "reference/chain_runner.h"
#include "reference/model_reference.h"
#include "reference/test_device.h"

namespace coppice::testing {

/// A tiny model's logits, each text's computed once.
class ExactLogits {
 public:
  ExactLogits(const std::filesystem::path& folder, const ModelConfig& config)
      : reference_(folder), config_(config) {}

  struct Comparison {
    double error = 0.0;  ///< the largest of a logit
    /// f32 sums of up to 56 products in 2 layers, logits of order 1: 1e-4 is over ten times what is
    /// seen. With activations, keys and values in bf16 the bound of a model's pass
    /// (reference/chain_runner.h).
    double tolerance = 0.0;
  };
  /// `logits`, (vocab), with those after `text`.
  Comparison compare(std::span<const float> logits, const std::vector<TokenId>& text) {
    auto& exact = known_[text];
    if (exact.empty()) exact = reference_.logits(text).back();
    Comparison found;
    double squares = 0.0;
    for (std::size_t i = 0; i < exact.size(); ++i) {
      const double difference = std::abs(static_cast<double>(logits[i]) - exact[i]);
      found.error = std::max(found.error, std::isnan(difference) ? HUGE_VAL : difference);
      squares += exact[i] * exact[i] / static_cast<double>(exact.size());
    }
    found.tolerance = on_cuda() ? logit_tolerance(config_, DType::bf16, std::sqrt(squares)) : 1e-4;
    return found;
  }

 private:
  ModelReference reference_;
  ModelConfig config_;
  std::map<std::vector<TokenId>, std::vector<double>> known_;
};

}  // namespace coppice::testing
