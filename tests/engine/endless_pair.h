// Generations that end by their length alone.
#pragma once

#include <vector>

#include "engine/pair.h"

namespace coppice::testing {

inline const std::vector<TokenId> prompt = {1, 7, 3, 9, 4};

inline GenerateOptions greedy(std::int32_t tokens) {
  GenerateOptions options;
  options.max_new_tokens = tokens;
  options.speculation = Dyspec{8};
  return options;
}

inline std::vector<TokenId> tokens_of(const Sequence& sequence) {
  return {sequence.tokens().begin(), sequence.tokens().end()};
}

/// For a TinyPair: a model without end tokens.
inline TinyModel endless(std::int32_t context = TinyModel().context_length) {
  TinyModel model;
  model.context_length = context;
  model.eos_tokens = {};
  return model;
}

}  // namespace coppice::testing
