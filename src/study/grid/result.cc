#include "study/grid/result.h"

#include <cmath>
#include <cstddef>
#include <numeric>

#include "base/error.h"

namespace coppice::study {
namespace {

void require_count(const char* name, std::int64_t count) {
  if (count < 0) throw_failure(cat(name, " is no count"));
}

bool is_consistent(const Result& result) {
  if (result.turns.empty() || result.tree_sizes.size() != result.accepted.size()) return false;
  for (const Turn& turn : result.turns) {
    if (turn.tokens.size() < static_cast<std::size_t>(turn.prefill_tokens)) return false;
  }
  for (std::size_t i = 0; i < result.accepted.size(); ++i) {
    if (result.accepted[i] < 0 || result.accepted[i] > result.tree_sizes[i]) return false;
  }
  return result.nodes.is_sound();
}

std::int64_t sum_of(const std::vector<std::int32_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

}  // namespace

double Components::decode() const {
  double seconds = 0.0;
  for (const auto& [name, part] : of_step()) seconds += this->*part;
  return seconds;
}

Components& Components::operator+=(const Components& others) {
  for (const auto& [name, part] : parts) this->*part += others.*part;
  return *this;
}

std::int64_t Result::tokens() const {
  std::int64_t sum = 0;
  for (const Turn& turn : turns) sum += static_cast<std::int64_t>(turn.tokens.size());
  return sum;
}

std::int64_t Result::decoded() const {
  std::int64_t sum = tokens();
  for (const Turn& turn : turns) sum -= turn.prefill_tokens;
  return sum;
}

std::int64_t Result::drafted() const { return sum_of(tree_sizes); }
std::int64_t Result::accepted_drafts() const { return sum_of(accepted); }

void check(const Result& result) {
  require_count("round", result.round);
  require_count("draft_passes", result.draft_passes);
  for (const Turn& turn : result.turns) {
    require_count("prompt_tokens", turn.prompt_tokens);
    require_count("prefill_tokens", turn.prefill_tokens);
  }
  for (const auto& [name, part] : Components::parts) {
    const double seconds = result.seconds.*part;
    if (seconds >= 0.0 && std::isfinite(seconds)) continue;
    throw_failure(cat("seconds of ", name, " are out of range"));
  }
  if (!is_consistent(result)) throw_failure("its counts contradict each other");
}

}  // namespace coppice::study
