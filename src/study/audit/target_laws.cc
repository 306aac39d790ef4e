#include "study/audit/target_laws.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/engine_impl.h"
#include "study/audit/rounding.h"
#include "study/observed.h"

namespace coppice::study {

PlainPass plain_pass(Engine& engine, std::span<const TokenId> text,
                     const GenerateOptions& sampling) {
  GenerateOptions options = sampling;
  options.policy = Policy::none;
  options.max_new_tokens = 1;
  options.ignore_eos = true;
  options.stop.clear();
  options.logprobs = false;
  PlainPass pass;
  const Observed observed(engine, [&](const StepView& view) {
    const auto probability = view.target.distribution(0);
    pass.probability.assign(probability.begin(), probability.end());
    // At temperature 1, so that gaps are gaps of logits.
    const auto unfiltered =
        view.target.distribution_at(0, {1.0, 0, 1.0, 0.0, view.target_params.repetition_penalty});
    pass.logprob.reserve(unfiltered.size());
    for (const float p : unfiltered) pass.logprob.push_back(std::log(static_cast<double>(p)));
  });
  engine.generate(text, options);
  if (pass.probability.empty()) {
    throw_failure(cat("audit: no KV slot is left for a text of ", text.size(),
                      " tokens; raise --kv-tokens or give shorter prompts"));
  }
  Engine::Impl& impl = engine.impl();
  pass.rounding = logit_rounding(impl.target.model->config(), impl.device->compute_dtype(),
                                 impl.device->kv_dtype(), spread_of(pass.logprob));
  return pass;
}

TargetLaws::TargetLaws(Engine& engine, const GenerateOptions& sampling)
    : engine_(engine), sampling_(sampling) {}

const TokenLaw* TargetLaws::find(std::span<const TokenId> text) const {
  const auto found = laws_.find({text.begin(), text.end()});
  return found == laws_.end() ? nullptr : &found->second;
}

const TokenLaw& TargetLaws::after(std::span<const TokenId> text) {
  std::vector<TokenId> key(text.begin(), text.end());
  const auto found = laws_.find(key);
  if (found != laws_.end()) return found->second;
  PlainPass pass = plain_pass(engine_, text, sampling_);
  rounding_ = std::max(rounding_, pass.rounding);
  // A filter's edge moves with rounding: what lies just outside may be inside in another pass.
  double least_kept = std::numeric_limits<double>::infinity();
  for (std::size_t t = 0; t < pass.probability.size(); ++t) {
    if (pass.probability[t] > 0.0f) least_kept = std::min(least_kept, pass.logprob[t]);
  }
  std::vector<TokenId> borderline;
  for (std::size_t t = 0; t < pass.probability.size(); ++t) {
    if (!(pass.probability[t] > 0.0f) && pass.logprob[t] >= least_kept - pass.rounding) {
      borderline.push_back(static_cast<TokenId>(t));
    }
  }
  return laws_.emplace(std::move(key), make_token_law(std::move(pass.probability), borderline))
      .first->second;
}

}  // namespace coppice::study
