#include "study/grid/settings.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <utility>

#include "study/acceptance/acceptance_file.h"

namespace coppice::study {

std::vector<ModelPair> StudyRequest::all_pairs() const {
  if (!pairs.empty()) return pairs;
  return {{"", engine.target, engine.draft}};
}

std::vector<StudyPrompt> spread(std::vector<StudyPrompt> prompts, std::int32_t count) {
  const auto wanted = static_cast<std::size_t>(std::max(count, 0));
  if (wanted == 0 || wanted >= prompts.size()) return prompts;
  std::vector<StudyPrompt> some;
  for (std::size_t i = 0; i < wanted; ++i) {
    some.push_back(std::move(prompts[i * prompts.size() / wanted]));
  }
  return some;
}

std::vector<StudyPrompt> left_out(const std::vector<StudyPrompt>& all,
                                  const std::vector<StudyPrompt>& some) {
  std::set<std::string> used;
  for (const StudyPrompt& prompt : some) used.insert(print_of(prompt));
  std::vector<StudyPrompt> others;
  for (const StudyPrompt& prompt : all) {
    if (!used.contains(print_of(prompt))) others.push_back(prompt);
  }
  return others;
}

}  // namespace coppice::study
