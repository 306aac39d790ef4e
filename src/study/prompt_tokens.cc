#include "study/prompt_tokens.h"

#include <algorithm>

namespace coppice::study {

std::vector<std::vector<TokenId>> to_tokens(const Engine& engine,
                                            const std::vector<StudyPrompt>& prompts,
                                            std::int32_t most, bool add_bos) {
  std::vector<std::vector<TokenId>> all;
  for (const StudyPrompt& prompt : prompts) {
    all.push_back(prompt.tokens.empty() ? engine.tokenize(prompt.text, add_bos) : prompt.tokens);
    all.back().resize(std::min(all.back().size(), static_cast<std::size_t>(most)));
  }
  return all;
}

}  // namespace coppice::study
