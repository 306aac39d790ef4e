// How logits become the distribution that is sampled from.
#pragma once

#include <cstdint>

namespace coppice {

/// What acts on logits does so in this order: masks of a constraint, GenerateOptions::logit_bias,
/// repetition penalty, frequency and presence penalty, temperature, top-k, top-p, min-p.
struct SamplingParams {
  double temperature = 0.0;  ///< 0: all mass on the argmax
  std::int32_t top_k = 0;    ///< 0: off
  double top_p = 1.0;        ///< 1: off
  double min_p = 0.0;        ///< 0: off
  double repetition_penalty =
      1.0;  ///< 1: off; divides positive logits of tokens already in the text, prompt included
  /// Subtracted from the logit of a token that the new text holds, the prompt not counted.
  double presence_penalty = 0.0;
  double frequency_penalty = 0.0;  ///< subtracted as often as the new text holds the token

  bool filters() const { return top_k > 0 || top_p < 1.0 || min_p > 0.0; }
  /// Whether the new text's tokens count.
  bool counts_new() const { return presence_penalty != 0.0 || frequency_penalty != 0.0; }
  /// Whether tokens of the text change logits.
  bool penalises() const { return repetition_penalty != 1.0 || counts_new(); }
  /// The same penalties at temperature 1, without filters.
  SamplingParams unfiltered() const {
    return {1.0, 0, 1.0, 0.0, repetition_penalty, presence_penalty, frequency_penalty};
  }
};

}  // namespace coppice
