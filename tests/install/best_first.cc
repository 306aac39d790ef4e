// best_first TARGET PROMPT: searches for a likely text best-first over branches. The likeliest open
// branch is forked a few times, its forks are written side by side, in passes that all of them
// share, and scored by the target's log-probability per token. Forks share the keys and values of
// what they have in common; a branch that is given up is destroyed.
#include <coppice.h>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

namespace {

constexpr std::size_t width = 4;        // forks of a branch
constexpr std::size_t most_open = 8;    // branches that are kept
constexpr std::int32_t piece = 12;      // tokens that a fork is continued by
constexpr std::int32_t whole_text = 36;  // tokens of a finished text

struct Branch {
  coppice::Sequence text;
  std::string words;
  double logprob = 0.0;
  std::int32_t tokens = 0;
  bool ended = false;
  double score() const { return tokens == 0 ? 0.0 : logprob / tokens; }
};

// Forks `from` and continues the forks.
std::vector<Branch> expand(coppice::Engine& engine, const Branch& from, std::uint64_t first_stream) {
  std::vector<Branch> forks;
  for (std::size_t i = 0; i < width; ++i) {
    forks.push_back({from.text.fork(), from.words, from.logprob, from.tokens});
  }
  std::vector<coppice::Request> requests(width);
  for (std::size_t i = 0; i < width; ++i) {
    requests[i].sequence = &forks[i].text;  // and no prompt: it goes on
    requests[i].options.max_new_tokens = piece;
    requests[i].options.sampling.temperature = 1.0;
    requests[i].options.stream = first_stream + i;  // forks of one stream would write one text
    requests[i].options.logprobs = true;
  }
  const std::vector<coppice::Outcome> outcomes = engine.generate(requests);
  for (std::size_t i = 0; i < width; ++i) {
    if (outcomes[i].error) std::rethrow_exception(outcomes[i].error);
    const coppice::Generation& written = outcomes[i].samples.front();
    forks[i].words += written.text;
    for (const coppice::TokenLogprob& token : written.logprobs) forks[i].logprob += token.logprob;
    forks[i].tokens += static_cast<std::int32_t>(written.tokens.size());
    forks[i].ended = written.finish_reason != coppice::FinishReason::length ||
                     forks[i].tokens >= whole_text;
  }
  return forks;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 3) {
    std::cerr << "usage: best_first TARGET PROMPT\n";
    return 2;
  }
  coppice::EngineOptions options;
  options.target = argv[1];
  options.max_sequences = width;
  auto engine = coppice::Engine::load(options);

  const coppice::Prefix prompt = engine.prefix(argv[2]);  // computed once
  std::vector<Branch> open;
  open.push_back({prompt.begin(), "", 0.0, 0});
  std::uint64_t stream = 0;
  while (true) {
    const auto best = std::max_element(open.begin(), open.end(), [](const Branch& a, const Branch& b) {
      return a.score() < b.score();
    });
    if (best->ended) {
      std::cout << argv[2] << best->words << "\n-- " << stream << " branches, "
                << best->score() << " per token\n";
      return 0;
    }
    const Branch chosen = std::move(*best);
    open.erase(best);
    for (Branch& fork : expand(engine, chosen, stream)) open.push_back(std::move(fork));
    stream += width;
    std::sort(open.begin(), open.end(),
              [](const Branch& a, const Branch& b) { return a.score() > b.score(); });
    if (open.size() > most_open) open.erase(open.begin() + most_open, open.end());
  }
} catch (const coppice::Error& error) {
  std::cerr << "best_first: " << error.what() << "\n";
  return 1;
}
