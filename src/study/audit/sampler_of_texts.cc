#include "study/audit/sampler_of_texts.h"

#include <cmath>

#include "base/error.h"
#include "engine/decode.h"

namespace coppice::study {

void DrawStatistics::add(const Statistics& one) {
  const auto n = static_cast<double>(one.steps);
  steps += one.steps;
  judged += std::llround(one.accepted_length * n);
  drafted += std::llround(one.tree_size_mean * n);
}

double DrawStatistics::accepted_length() const {
  return steps > 0 ? static_cast<double>(judged) / static_cast<double>(steps) : 0.0;
}

double DrawStatistics::tree_size() const {
  return steps > 0 ? static_cast<double>(drafted) / static_cast<double>(steps) : 0.0;
}

TextSampler::TextSampler(Engine& engine, std::span<const TokenId> prompt)
    : engine_(engine), state_(engine.impl().new_text()) {
  engine.impl().append_prompt(state_, prompt);
  prompt_length_ = state_.length();
}

// Short of slots, decode() says so.
void TextSampler::prefill() {
  Engine::Impl& impl = engine_.impl();
  if (TargetRunner::late_rows(state_) == 0) return;
  const std::lock_guard lock(impl.mutex);
  const DeviceScope scope(*impl.device);
  impl.target_runner->prefill(state_);
}

std::span<const TokenId> TextSampler::draw(const GenerateOptions& options,
                                           DrawStatistics* statistics) {
  Engine::Impl& impl = engine_.impl();
  GenerateOptions endless = options;
  endless.ignore_eos = true;
  impl.check(endless);
  const CutBack prompt{state_, prompt_length_};
  prefill();
  Generation result = decode(impl, state_, endless);
  if (result.finish_reason != FinishReason::length) {
    throw_failure(cat("audit: ", name_of(result.finish_reason), " ended a text after ",
                      prompt_length_, " + ", result.tokens.size(),
                      " tokens; give shorter prompts or raise --kv-tokens"));
  }
  if (statistics != nullptr) statistics->add(result.statistics);
  tokens_ = std::move(result.tokens);
  return tokens_;
}

}  // namespace coppice::study
