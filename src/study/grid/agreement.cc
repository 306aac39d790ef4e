#include "study/grid/agreement.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <tuple>

namespace coppice::study {
namespace {

using Group = std::tuple<std::string, double, Acceptance>;

Group group_of(const Cell& cell) {
  // At temperature 0 the rule makes no difference.
  const Acceptance acceptance = cell.temperature == 0.0 ? Acceptance::rejection : cell.acceptance;
  return {cell.pair, cell.temperature, acceptance};
}

using Reference = std::tuple<Group, std::uint64_t, std::string>;

/// The text that a cell's must repeat: where it is drawn, that of its own seed.
Reference reference_of(const Cell& cell, const std::string& prompt) {
  return {group_of(cell), cell.temperature == 0.0 ? 0 : cell.seed, prompt};
}

/// Whether memory or context ended the text, so that nothing follows from its length.
bool is_cut(const Turn& turn) {
  return turn.finish_reason == name_of(FinishReason::memory) ||
         turn.finish_reason == name_of(FinishReason::context);
}

}  // namespace

bool is_bound(const Cell& cell) {
  return cell.temperature == 0.0 || cell.acceptance == Acceptance::coupled;
}

std::optional<Divergence> first_divergence(const Result& expected, const Result& found) {
  const std::size_t turns = std::min(expected.turns.size(), found.turns.size());
  for (std::size_t t = 0; t < turns; ++t) {
    const Turn &a = expected.turns[t], &b = found.turns[t];
    const std::size_t longest = std::max(a.tokens.size(), b.tokens.size());
    for (std::size_t i = 0; i < longest; ++i) {
      if (i >= a.tokens.size() && is_cut(a)) return std::nullopt;
      if (i >= b.tokens.size() && is_cut(b)) return std::nullopt;
      const TokenId at_a = i < a.tokens.size() ? a.tokens[i] : -1;
      const TokenId at_b = i < b.tokens.size() ? b.tokens[i] : -1;
      if (at_a == at_b) continue;
      return Divergence{found.cell,
                        found.prompt,
                        found.round,
                        static_cast<std::int32_t>(t),
                        static_cast<std::int32_t>(i),
                        at_a,
                        at_b};
    }
    // Later turns follow another text.
    if (is_cut(a) || is_cut(b)) return std::nullopt;
  }
  return std::nullopt;
}

std::vector<Agreement> agreements_of(std::span<const Cell> cells, const Results& results) {
  std::map<std::string, const Cell*> cell_of;
  std::vector<Agreement> agreements;
  std::map<Group, std::size_t> place;
  for (const Cell& cell : cells) {
    cell_of[cell.key()] = &cell;
    if (!is_bound(cell)) continue;
    if (place.emplace(group_of(cell), agreements.size()).second) {
      agreements.push_back(
          {cell.pair, cell.temperature, std::get<Acceptance>(group_of(cell)), 0, {}});
    }
  }
  // By prompt, round and cell, so that nothing depends on who was faster.
  std::vector<const Result*> ordered;
  for (const Result& result : results.results()) {
    if (cell_of.contains(result.cell) && is_bound(*cell_of.at(result.cell))) {
      ordered.push_back(&result);
    }
  }
  std::ranges::sort(ordered, [](const Result* a, const Result* b) {
    return std::tie(a->prompt, a->round, a->cell) < std::tie(b->prompt, b->round, b->cell);
  });
  std::map<Reference, const Result*> references;
  for (const Result* result : ordered) {
    const Cell& cell = *cell_of.at(result->cell);
    if (cell.plain()) references.emplace(reference_of(cell, result->prompt), result);
  }
  for (const Result* result : ordered) {
    const Cell& cell = *cell_of.at(result->cell);
    const auto reference = references.find(reference_of(cell, result->prompt));
    if (reference == references.end() || reference->second == result) continue;
    Agreement& agreement = agreements[place.at(group_of(cell))];
    ++agreement.texts;
    if (auto divergence = first_divergence(*reference->second, *result)) {
      agreement.divergences.push_back(std::move(*divergence));
    }
  }
  return agreements;
}

}  // namespace coppice::study
