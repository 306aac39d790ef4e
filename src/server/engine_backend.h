// The server's engine.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "server/backend.h"

namespace coppice::server {

/// A backend over an engine that outlives it. `chat_template`: a file with another template than
/// the model's own; "" for that, which may be missing. Its statistics count from now on, but for
/// the cache's. `lost` hears why the model can be used no more, as soon as that is known and after
/// each request that fails by it; from any thread, and as long as the engine lives. Throws Error.
std::unique_ptr<Backend> make_engine_backend(
    Engine& engine, const std::filesystem::path& chat_template,
    std::function<void(const std::string& why)> lost = [](const std::string&) {});

}  // namespace coppice::server
