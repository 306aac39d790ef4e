// Whether texts agree where they must: at temperature 0 every policy writes the greedy text, and
// under coupled acceptance the one that plain decoding writes with the same seed; in every round.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "study/grid/grid.h"
#include "study/grid/results.h"

namespace coppice::study {

/// Where a text first departs from the one it must repeat.
struct Divergence {
  std::string cell, prompt;  ///< of the text that departs, as in Result
  std::int32_t round = 0;
  std::int32_t turn = 0;              ///< from 0
  std::int32_t position = 0;          ///< of the turn's new tokens, from 0
  TokenId expected = -1, found = -1;  ///< -1: the text had ended
};

/// Whether a cell's texts are bound to repeat those of plain decoding.
bool is_bound(const Cell& cell);

/// Whether memory or context ended the turn, so that nothing follows from its length.
bool is_cut(const Turn& turn);

/// Where `found` departs from `expected`. nullopt: nowhere, or not before one of them was cut.
std::optional<Divergence> first_divergence(const Result& expected, const Result& found);

/// The texts of a temperature that must agree with those of plain decoding.
struct Agreement {
  double temperature = 0.0;
  Acceptance acceptance = Acceptance::rejection;
  std::int64_t texts = 0;  ///< compared
  std::vector<Divergence> divergences;
};

/// Compares each text with that of plain decoding in round 0, prompt by prompt; at temperature 0
/// with one text for all seeds, else seed by seed. Groups in the order of `cells`; those that
/// nothing binds (rejection above temperature 0) are left out.
std::vector<Agreement> agreements_of(std::span<const Cell> cells, const Results& results);

}  // namespace coppice::study
