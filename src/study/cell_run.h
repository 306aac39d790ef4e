// One prompt under one cell.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>

#include "coppice.h"
#include "study/cell.h"
#include "study/record.h"
#include "study/trace.h"

namespace coppice::study {

struct CellRun {
  const Cell& cell;
  const SharedOptions& shared;
  std::span<const TokenId> prompt;
  std::int32_t prompt_index = 0;  ///< also the random stream, so that prompts do not share noise
  std::string kind;
  bool keep_steps = false;  ///< Record::tree_sizes and accepted
  std::function<bool()> stop;
  TraceRun* trace = nullptr;  ///< receives every step
};

/// Generates and observes. nullopt where `stop` ended it. No other generation may run on the engine
/// meanwhile.
std::optional<Record> run_cell(Engine& engine, const CellRun& run);

}  // namespace coppice::study
