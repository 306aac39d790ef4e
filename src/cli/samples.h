// `coppice generate --n K`: several samples of one text.
#pragma once

#include <stop_token>
#include <string>

#include "cli/terminal.h"
#include "coppice.h"

namespace coppice::cli {

struct Samples {
  std::string table;    ///< of statistics
  std::string stopped;  ///< what was ended early, in words; empty: nothing
};

/// Writes the samples of `request` side by side until `stop` is asked for, then prints those that
/// had begun, with a line before each, or as a JSON array. Throws Error(failure) with the first
/// failure, after the other samples are printed; ClosedPipe.
Samples write_samples(Engine& engine, Request request, bool json, ProgressLine& progress,
                      const std::stop_token& stop);

}  // namespace coppice::cli
