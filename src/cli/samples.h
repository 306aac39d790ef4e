// `coppice generate --n K`: several samples of one text.
#pragma once

#include <string>

#include "cli/terminal.h"
#include "coppice.h"

namespace coppice::cli {

struct Samples {
  std::string table;    ///< of statistics
  std::string stopped;  ///< what Ctrl-C ended, in words; empty: nothing
};

/// Writes the samples of `request` side by side, then prints them, with a line before each, or as
/// a JSON array; after Ctrl-C those that had begun. Throws Error(failure) with the first failure,
/// after the other samples are printed; ClosedPipe.
Samples write_samples(Engine& engine, Request request, bool json, ProgressLine& progress);

}  // namespace coppice::cli
