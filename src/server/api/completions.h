// POST /v1/completions.
#pragma once

#include <string_view>

#include "server/api/writer.h"
#include "server/backend.h"

namespace coppice::server {

/// Throws ApiError, and Error(usage) of the engine.
TextsJob read_completion(std::string_view body, Backend& backend, const ApiDefaults& defaults);

}  // namespace coppice::server
