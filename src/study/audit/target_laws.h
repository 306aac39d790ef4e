// The target's own law of the next token, by plain passes.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "coppice.h"
#include "study/audit/goodness_of_fit.h"

namespace coppice::study {

/// One plain pass over a text.
struct PlainPass {
  /// [vocab] log-probabilities at temperature 1 after the repetition penalty, no filter.
  std::vector<double> logprob;
  std::vector<float> probability;  ///< [vocab] as sampled from, filters included
  /// What rounding may make of a difference of two logprobs (study/audit/rounding.h).
  double rounding = 0.0;
};

/// Takes over the engine's observer for the call. Throws Error(failure) where the text has no room.
PlainPass plain_pass(Engine& engine, std::span<const TokenId> text,
                     const GenerateOptions& sampling);

/// Laws under the temperature, filters and penalty of one request, each computed once.
class TargetLaws {
 public:
  TargetLaws(Engine& engine, const GenerateOptions& sampling);
  /// Valid as long as this object.
  const TokenLaw& after(std::span<const TokenId> text);
  /// nullptr where it was never asked for.
  const TokenLaw* find(std::span<const TokenId> text) const;
  /// Largest PlainPass::rounding so far.
  double rounding() const { return rounding_; }

 private:
  Engine& engine_;
  GenerateOptions sampling_;
  std::map<std::vector<TokenId>, TokenLaw> laws_;
  double rounding_ = 0.0;
};

}  // namespace coppice::study
