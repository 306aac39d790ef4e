// The exact law of a small random target's first three tokens, and how well an engine's fit it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "engine/loading.h"
#include "engine/pair.h"
#include "reference/model_reference.h"
#include "reference/naive_logits.h"
#include "reference/quick.h"
#include "reference/sanitized.h"
#include "reference/statistics.h"

namespace coppice::testing {

inline constexpr int law_vocab = 6;
// Under the sanitizers no fault is planted.
inline constexpr int usual_draws = sanitized ? 600 : quick ? 6000 : 12000;
inline const std::vector<TokenId> law_prompt = {1, 4, 2, 5};

inline TinyModel law_shape(std::uint64_t seed) {
  TinyModel model;
  model.vocab_size = law_vocab;
  model.layers = 1;
  model.logit_scale = 2.0;
  model.seed = seed;
  model.bos_token = 0;
  model.eos_tokens = {};
  return model;
}

/// Law of the first three tokens after `begin`, index a * 36 + b * 6 + c.
inline std::vector<double> exact_law(const std::filesystem::path& target, const GenerateOptions& o,
                                     const std::vector<TokenId>& begin = law_prompt,
                                     std::optional<WeightFormat> rounding = std::nullopt) {
  const ModelReference model(target, 8192, rounding);
  const SamplingParams& params = o.sampling;
  const auto next = [&](const std::vector<TokenId>& text) {
    const auto logits = model.logits(text).back();
    std::vector<float> row(logits.begin(), logits.end());
    for (const auto& [token, added] : o.logit_bias) {
      row[static_cast<std::size_t>(token)] += static_cast<float>(added);
    }
    std::vector<bool> seen(law_vocab, false);
    std::vector<std::int32_t> fresh(law_vocab, 0);
    for (const TokenId t : text) seen[static_cast<std::size_t>(t)] = true;
    for (const TokenId t : std::span(text).subspan(begin.size())) {
      ++fresh[static_cast<std::size_t>(t)];
    }
    return naive_process(row, params, seen, nullptr, fresh);
  };
  std::vector<double> law;
  std::vector<TokenId> text = begin;
  const auto first = next(text);
  for (TokenId a = 0; a < law_vocab; ++a) {
    text.push_back(a);
    const auto second = next(text);
    for (TokenId b = 0; b < law_vocab; ++b) {
      text.push_back(b);
      const auto third = next(text);
      for (TokenId c = 0; c < law_vocab; ++c) {
        law.push_back(first[static_cast<std::size_t>(a)] * second[static_cast<std::size_t>(b)] *
                      third[static_cast<std::size_t>(c)]);
      }
      text.pop_back();
    }
    text.pop_back();
  }
  return law;
}

/// The fit of the first three of five tokens, over `draws` seeds; the mean accepted length beside
/// it. All three come from steps, unless every text's prompt is `fresh`.
inline Fit fit_of_three(Engine& engine, const std::filesystem::path& target,
                        GenerateOptions options, double* accepted_length = nullptr,
                        int draws = usual_draws, bool fresh = false) {
  options.max_new_tokens = 5;
  std::vector<std::int64_t> counts(law_vocab * law_vocab * law_vocab, 0);
  double accepted = 0.0;
  KeptPrompt kept(engine, law_prompt);
  for (int i = 0; i < draws; ++i) {
    options.seed = 1000 + static_cast<std::uint64_t>(i);
    const Generation g = fresh ? engine.generate(law_prompt, options) : kept.generate(options);
    EXPECT_EQ(g.statistics.prefill_tokens, fresh ? 1 : 0);
    accepted += g.statistics.accepted_length / draws;
    ++counts[static_cast<std::size_t>((g.tokens[0] * law_vocab + g.tokens[1]) * law_vocab +
                                      g.tokens[2])];
  }
  if (accepted_length != nullptr) *accepted_length = accepted;
  const auto rounding = rounding_of(inside(engine).options, ModelRole::target);
  return compare(counts, exact_law(target, options, law_prompt, rounding));
}

}  // namespace coppice::testing
