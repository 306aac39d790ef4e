#include "study/prompts/drawn_prompts.h"

#include <algorithm>

#include "base/error.h"
#include "engine/engine_impl.h"

namespace coppice::study {

std::vector<std::vector<TokenId>> draw_prompts(Engine& engine, std::int32_t count,
                                               std::int32_t length, std::uint64_t seed) {
  const std::int32_t slots = engine.impl().target.pool->layout().slots();
  const std::int32_t room = std::min(engine.context_length(), slots);
  if (length >= room) {
    throw_usage(cat("--prompt-tokens ", length, ": the context holds ", engine.context_length(),
                    " tokens and KV memory ", slots, "; use ", room - 1, " or fewer",
                    room < engine.impl().target.model->config().context_length
                        ? ", or raise --kv-tokens"
                        : ""));
  }
  const TokenId bos = engine.impl().target.model->config().bos_token;
  const std::vector<TokenId> start = {std::max(0, bos)};
  GenerateOptions options;
  options.temperature = 1.0;
  options.policy = Policy::none;
  options.ignore_eos = true;
  options.max_new_tokens = length - 1;
  options.seed = seed;
  std::vector<std::vector<TokenId>> prompts;
  for (std::int32_t i = 0; i < count; ++i) {
    options.stream = static_cast<std::uint64_t>(i);
    std::vector<TokenId> prompt = start;
    if (length > 1) {
      const Generation text = engine.generate(start, options);
      if (text.finish_reason != FinishReason::length) {
        throw_failure(cat("prompts: ", name_of(text.finish_reason), " ended one that the target ",
                          "wrote after ", text.tokens.size() + 1, " of ", length,
                          " tokens; lower --prompt-tokens or raise --kv-tokens"));
      }
      prompt.insert(prompt.end(), text.tokens.begin(), text.tokens.end());
    }
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

}  // namespace coppice::study
