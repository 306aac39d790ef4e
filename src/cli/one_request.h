// A call of the engine with one request.
#pragma once

#include <stop_token>

#include "coppice.h"

namespace coppice::cli {

/// Whether any of its text was written: it did not fail, and was not stopped before it began.
bool has_begun(const Generation& sample);

/// What became of it. Throws what it failed by if no sample has begun: one sample is then whole, or
/// was stopped.
Outcome write_request(Engine& engine, const Request& request, const std::stop_token& stop);

}  // namespace coppice::cli
