// The server's engine.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "server/backend.h"

namespace coppice::server {

/// A backend over an engine that outlives it. `chat_template`: a file with another template than
/// the model's own; "" for that, which may be missing. Its statistics count from now on, but for
/// the cache's. Throws Error.
std::unique_ptr<Backend> make_engine_backend(Engine& engine,
                                             const std::filesystem::path& chat_template);

}  // namespace coppice::server
