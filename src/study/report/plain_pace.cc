#include "study/report/plain_pace.h"

#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include "base/error.h"
#include "study/figures/text.h"

namespace coppice::study {
namespace {

/// Plain decoding of a prompt in a round: all of its seeds, temperatures and rules.
struct Part {
  double tokens = 0.0, passes = 0.0, seconds = 0.0;
  double context = 0.0;  ///< tokens before each pass's, summed over passes

  Part& operator+=(const Part& other) {
    return *this = {tokens + other.tokens, passes + other.passes, seconds + other.seconds,
                    context + other.context};
  }
};

void add(Part& part, const Result& result) {
  const auto passes = static_cast<double>(result.steps());
  double context = 0.0, tokens = 0.0;
  for (const Turn& turn : result.turns) {
    const auto own = static_cast<double>(turn.tokens.size());
    tokens += own;
    context += own * (turn.prompt_tokens + own / 2.0);
  }
  const double mean_context = tokens > 0.0 ? context / tokens : 0.0;
  part += {static_cast<double>(result.decoded()), passes, result.seconds.decode(),
           passes * mean_context};
}

/// The slowest and the fastest of some speeds; none if there are fewer than two.
PlainPace spread_of(const std::vector<double>& speeds, bool of_rounds) {
  if (speeds.size() < 2) return {};
  const auto [slowest, fastest] = std::ranges::minmax(speeds);
  return {slowest, fastest, of_rounds};
}

PlainPace pace_of_rounds(const std::vector<std::vector<Part>>& parts) {
  std::vector<double> speeds;
  for (const std::vector<Part>& round : parts) {
    Part all;
    for (const Part& one : round) all += one;
    if (all.seconds > 0.0) speeds.push_back(all.tokens / all.seconds);
  }
  return spread_of(speeds, true);
}

PlainPace pace_of_thirds(const std::vector<Part>& prompts) {
  constexpr std::size_t thirds = 3, least_in_third = 2;
  if (prompts.size() < thirds * least_in_third) return {};
  // Least squares of seconds a pass over the context, by passes.
  Part all;
  for (const Part& one : prompts) all += one;
  const double mean_context = all.context / all.passes, mean = all.seconds / all.passes;
  double squares = 0.0, products = 0.0;
  for (const Part& one : prompts) {
    const double apart = one.context / one.passes - mean_context;
    squares += one.passes * apart * apart;
    products += apart * (one.seconds - one.passes * mean);
  }
  const double slope = squares > 0.0 ? std::max(0.0, products / squares) : 0.0;
  std::vector<double> speeds;
  for (std::size_t third = 0; third < thirds; ++third) {
    double expected = 0.0, seconds = 0.0;
    for (std::size_t p = third * prompts.size() / thirds; p < (third + 1) * prompts.size() / thirds;
         ++p) {
      const Part& one = prompts[p];
      expected += one.passes * mean + slope * (one.context - one.passes * mean_context);
      seconds += one.seconds;
    }
    speeds.push_back(all.tokens / all.seconds * expected / seconds);
  }
  return spread_of(speeds, false);
}

}  // namespace

PlainPace plain_pace(const Results& results, std::span<const std::string> prompts) {
  // By run, then by round and prompt.
  std::map<std::string, std::vector<std::vector<Part>>> runs;
  for (const Result& result : results.results()) {
    if (!is_plain_key(result.cell)) continue;
    const auto p =
        static_cast<std::size_t>(std::ranges::find(prompts, result.prompt) - prompts.begin());
    if (p == prompts.size()) continue;
    std::vector<std::vector<Part>>& rounds = runs[result.run];
    rounds.resize(static_cast<std::size_t>(results.plan().rounds),
                  std::vector<Part>(prompts.size()));
    add(rounds[static_cast<std::size_t>(result.round)][p], result);
  }
  PlainPace most;
  for (auto& [run, rounds] : runs) {
    // Only prompts that the run has in all of its rounds tell these apart.
    std::erase_if(rounds, [](const std::vector<Part>& round) {
      return std::ranges::all_of(round, [](const Part& one) { return one.passes == 0.0; });
    });
    std::vector<std::vector<Part>> whole(rounds.size());
    for (std::size_t p = 0; p < prompts.size(); ++p) {
      const auto is_there = [&](const std::vector<Part>& round) { return round[p].passes > 0.0; };
      if (!std::ranges::all_of(rounds, is_there)) continue;
      for (std::size_t r = 0; r < rounds.size(); ++r) whole[r].push_back(rounds[r][p]);
    }
    if (whole.empty()) continue;
    const PlainPace own = whole.size() > 1 ? pace_of_rounds(whole) : pace_of_thirds(whole[0]);
    if (own.fastest * most.slowest >= most.fastest * own.slowest) most = own;
  }
  return most;
}

std::string noise_sentence(const PlainPace& pace, const std::string& whose) {
  if (!pace.noisy()) return {};
  return cat(whose, " was noisy: plain decoding alone made ", fixed(pace.slowest, 1),
             " tokens/s in one ", pace.of_rounds ? "round" : "third of the prompts", " and ",
             fixed(pace.fastest, 1),
             " in another. Study again when nothing else runs, or with more --rounds.");
}

}  // namespace coppice::study
