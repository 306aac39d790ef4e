#include "study/grid/agreement.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace coppice::study {

bool is_bound(const Cell& cell) {
  return cell.temperature == 0.0 || cell.acceptance == Acceptance::coupled;
}

bool is_cut(const Turn& turn) {
  return turn.finish_reason == name_of(FinishReason::memory) ||
         turn.finish_reason == name_of(FinishReason::context);
}

std::optional<Divergence> first_divergence(const Result& expected, const Result& found) {
  const std::size_t turns = std::min(expected.turns.size(), found.turns.size());
  for (std::size_t t = 0; t < turns; ++t) {
    const Turn &a = expected.turns[t], &b = found.turns[t];
    const auto [at_a, at_b] = std::ranges::mismatch(a.tokens, b.tokens);
    const bool a_ended = at_a == a.tokens.end(), b_ended = at_b == b.tokens.end();
    if ((a_ended && is_cut(a)) || (b_ended && is_cut(b))) return std::nullopt;
    if (a_ended && b_ended) continue;
    return Divergence{found.cell,
                      found.prompt,
                      found.round,
                      static_cast<std::int32_t>(t),
                      static_cast<std::int32_t>(at_a - a.tokens.begin()),
                      a_ended ? -1 : *at_a,
                      b_ended ? -1 : *at_b};
  }
  return std::nullopt;
}

std::vector<Agreement> agreements_of(std::span<const Cell> cells, const Results& results) {
  std::map<std::string, const Cell*> bound;  // by key
  std::vector<Agreement> agreements;
  const auto group_of = [&](const Cell& cell) {
    return std::ranges::find(agreements, cell.temperature, &Agreement::temperature);
  };
  for (const Cell& cell : cells) {
    if (!is_bound(cell)) continue;
    bound[cell.key()] = &cell;
    if (group_of(cell) != agreements.end()) continue;
    agreements.push_back({cell.temperature, cell.acceptance, 0, {}});
  }
  std::vector<const Result*> ordered;
  for (const Result& result : results.results()) {
    if (bound.contains(result.cell)) ordered.push_back(&result);
  }
  std::ranges::sort(ordered, {}, in_order);
  // The text that a cell's must repeat: where it is drawn, that of its own seed.
  std::map<std::tuple<double, std::uint64_t, std::string>, const Result*> references;
  const auto reference_of = [&](const Result* result) {
    const Cell& cell = *bound.at(result->cell);
    return std::tuple(cell.temperature, cell.temperature == 0.0 ? 0 : cell.seed, result->prompt);
  };
  for (const Result* result : ordered) {
    if (bound.at(result->cell)->plain()) references.emplace(reference_of(result), result);
  }
  for (const Result* result : ordered) {
    const auto reference = references.find(reference_of(result));
    if (reference == references.end() || reference->second == result) continue;
    Agreement& agreement = *group_of(*bound.at(result->cell));
    ++agreement.texts;
    if (auto divergence = first_divergence(*reference->second, *result)) {
      agreement.divergences.push_back(std::move(*divergence));
    }
  }
  return agreements;
}

}  // namespace coppice::study
