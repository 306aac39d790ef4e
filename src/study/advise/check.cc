#include <algorithm>
#include <boost/math/statistics/univariate_statistics.hpp>

#include "base/error.h"
#include "study/advise/advise.h"

namespace coppice::study {
namespace {

void choose(Check& check) {
  for (std::size_t s = 1; s < check.settings.size(); ++s) {
    const Candidate& one = check.settings[s];
    if (one.speedup < least_speedup) continue;
    if (one.lowest <= 1.0) {
      check.undecided = true;
    } else if (!check.best || one.speedup > check.settings[*check.best].speedup) {
      check.best = s;
    }
  }
  check.undecided = check.undecided && !check.best;
}

}  // namespace

std::optional<Check> confirm(
    std::vector<Candidate> settings, std::size_t prompts, std::int32_t rounds,
    const std::function<std::optional<Trial>(std::size_t setting, std::size_t prompt,
                                             std::int32_t round)>& run) {
  Check check;
  check.settings = std::move(settings);
  check.rounds = rounds;
  const std::size_t count = check.settings.size();
  std::vector<std::vector<double>> rates(count);  // by setting, by round
  for (std::int32_t round = 0; round < rounds; ++round) {
    std::vector<Trial> sums(count);
    for (std::size_t prompt = 0; prompt < prompts; ++prompt) {
      for (std::size_t turn = 0; turn < count; ++turn) {
        // Whoever runs first finds other caches: each setting does so equally often.
        const std::size_t s = (turn + prompt + static_cast<std::size_t>(round)) % count;
        const std::optional<Trial> trial = run(s, prompt, round);
        if (!trial) return std::nullopt;
        sums[s] += *trial;
      }
    }
    for (std::size_t s = 0; s < count; ++s) {
      if (!(sums[s].seconds > 0.0)) {
        throw_failure("advise: a run took no time by the clock; raise --max-new-tokens");
      }
      rates[s].push_back(sums[s].tokens_per_second());
      check.settings[s].measured += sums[s];
    }
  }
  for (std::size_t s = 0; s < count; ++s) {
    Candidate& one = check.settings[s];
    std::vector<double> ratios;
    for (std::size_t r = 0; r < rates[s].size(); ++r) ratios.push_back(rates[s][r] / rates[0][r]);
    const auto [lowest, highest] = std::ranges::minmax(ratios);
    one.lowest = lowest;
    one.highest = highest;
    one.speedup = boost::math::statistics::median(ratios);
  }
  const auto [slowest, fastest] = std::ranges::minmax(rates[0]);
  check.plain_slowest = slowest;
  check.plain_fastest = fastest;
  choose(check);
  return check;
}

}  // namespace coppice::study
