// One prompt under one cell.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "coppice.h"
#include "study/grid/cell.h"
#include "study/grid/result.h"
#include "study/grid/trace.h"

namespace coppice::study {

struct CellRun {
  const Cell& cell;
  const SharedOptions& shared;
  const std::vector<std::vector<TokenId>>& turns;  ///< of the prompt, at least one; none is empty
  std::uint64_t stream = 0;  ///< of randomness, so that prompts do not share noise
  std::function<bool()> stop;
  TraceRun* trace = nullptr;  ///< receives every step
  /// GenerateOptions::acceptance_vector; may be null.
  const std::vector<double>* acceptance_vector = nullptr;
};

/// Generates and observes, turn by turn, each after the answers to those before it; a turn that
/// the context or the KV memory ended is the last one. nullopt if `stop` ended it. The result's
/// prompt and round are left to the caller. No other generation may run on the engine meanwhile.
std::optional<Result> run_cell(Engine& engine, const CellRun& run);

}  // namespace coppice::study
