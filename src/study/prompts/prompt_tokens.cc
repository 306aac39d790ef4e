#include "study/prompts/prompt_tokens.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/error.h"
#include "engine/access.h"

namespace coppice::study {

std::vector<std::vector<TokenId>> to_tokens(Engine& engine, const std::filesystem::path& file,
                                            const std::vector<StudyPrompt>& prompts,
                                            const PromptUse& use) {
  const LoadedModel& target = EngineAccess(engine).target();
  const std::int32_t room = std::min(engine.context_length(), target.pool->layout().slots());
  const bool memory_is_short = room < target.model->config().context_length;
  std::vector<std::vector<TokenId>> all;
  for (const StudyPrompt& prompt : prompts) {
    const std::string where = cat("prompts ", quote(file.string()), " line ", prompt.line);
    std::vector<TokenId> tokens =
        prompt.tokens.empty() ? engine.tokenize(prompt.text, use.add_bos) : prompt.tokens;
    const auto most = static_cast<std::size_t>(use.most);
    if (most > 0 && tokens.size() > most) tokens.resize(most);
    if (tokens.empty()) throw_usage(cat(where, ": it holds no tokens; give at least one"));
    for (const TokenId token : tokens) {
      if (token >= 0 && token < engine.vocab_size()) continue;
      throw_usage(cat(where, ": token ", token, " is outside the target's vocabulary; give 0 to ",
                      engine.vocab_size() - 1));
    }
    if (tokens.size() + static_cast<std::size_t>(use.new_tokens) > static_cast<std::size_t>(room)) {
      throw_usage(cat(where, ": ", tokens.size(), " tokens and ", use.new_tokens, " new ",
                      use.new_tokens == 1 ? "one" : "ones", " are more than the ", room,
                      memory_is_short ? " that the KV memory holds; " : " of the model's context; ",
                      use.remedy, memory_is_short ? ", or raise --kv-tokens" : ""));
    }
    all.push_back(std::move(tokens));
  }
  return all;
}

std::vector<std::vector<std::vector<TokenId>>> to_turns(Engine& engine,
                                                        const std::filesystem::path& file,
                                                        const std::vector<StudyPrompt>& prompts,
                                                        const PromptUse& use) {
  std::vector<std::vector<std::vector<TokenId>>> all;
  for (std::vector<TokenId>& first : to_tokens(engine, file, prompts, use)) {
    all.push_back({std::move(first)});
    for (const std::string& turn : prompts[all.size() - 1].later_turns) {
      std::vector<TokenId> tokens = engine.tokenize(cat("\n\n", turn, "\n\n"), false);
      const auto most = static_cast<std::size_t>(use.most);
      if (most > 0 && tokens.size() > most) tokens.resize(most);
      all.back().push_back(std::move(tokens));
    }
  }
  return all;
}

std::vector<std::vector<TokenId>> draw_prompts(Engine& engine, std::int32_t count,
                                               std::int32_t length, std::uint64_t seed) {
  const LoadedModel& target = EngineAccess(engine).target();
  const std::int32_t slots = target.pool->layout().slots();
  const std::int32_t room = std::min(engine.context_length(), slots);
  if (length >= room) {
    throw_usage(cat("--prompt-tokens ", length, ": the context holds ", engine.context_length(),
                    " tokens and KV memory ", slots, "; use ", room - 1, " or fewer",
                    room < target.model->config().context_length ? ", or raise --kv-tokens" : ""));
  }
  const TokenId bos = target.model->config().bos_token;
  const std::vector<TokenId> start = {std::max(0, bos)};
  GenerateOptions options;
  options.sampling.temperature = 1.0;
  options.speculation = Plain{};
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
