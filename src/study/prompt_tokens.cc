#include "study/prompt_tokens.h"

#include <algorithm>

#include "base/error.h"

namespace coppice::study {

std::vector<std::vector<TokenId>> to_tokens(const Engine& engine, const std::filesystem::path& file,
                                            const std::vector<StudyPrompt>& prompts,
                                            std::int32_t most, bool add_bos) {
  std::vector<std::vector<TokenId>> all;
  for (const StudyPrompt& prompt : prompts) {
    for (const TokenId token : prompt.tokens) {
      if (token >= 0 && token < engine.vocab_size()) continue;
      throw_failure(cat("prompts ", quote(file.string()), " line ", prompt.line, ": token ", token,
                        " is outside the target's vocabulary; give 0 to ",
                        engine.vocab_size() - 1));
    }
    all.push_back(prompt.tokens.empty() ? engine.tokenize(prompt.text, add_bos) : prompt.tokens);
    all.back().resize(std::min(all.back().size(), static_cast<std::size_t>(most)));
  }
  return all;
}

}  // namespace coppice::study
