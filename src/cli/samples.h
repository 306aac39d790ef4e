// `coppice generate --n K`: several samples of one text.
#pragma once

#include "cli/terminal.h"
#include "coppice.h"

namespace coppice::cli {

/// Writes the samples of `request` side by side, then prints them, with a line before each, or as
/// a JSON array; also what is there after Ctrl-C. Returns them. Throws what the first that failed
/// did, and ClosedPipe.
std::vector<Generation> write_samples(Engine& engine, Request request, bool json,
                                      ProgressLine& progress);

}  // namespace coppice::cli
