// How logits become the distribution that is sampled from.
#pragma once

#include <cstdint>

namespace coppice {

/// Filters act in this order: repetition penalty, temperature, top-k, top-p, min-p.
struct SamplingParams {
  double temperature = 0.0;  ///< 0: all mass on the argmax
  std::int32_t top_k = 0;    ///< 0: off
  double top_p = 1.0;        ///< 1: off
  double min_p = 0.0;        ///< 0: off
  double repetition_penalty =
      1.0;  ///< 1: off; divides positive logits of tokens already in the text

  bool filters() const { return top_k > 0 || top_p < 1.0 || min_p > 0.0; }
};

}  // namespace coppice
