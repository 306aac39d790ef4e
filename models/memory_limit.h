// How much memory this process may still use.
#pragma once

#include <cstdint>
#include <filesystem>

namespace coppice {

/// The smaller of the system's available memory and what the process's control group leaves, in
/// bytes; INT64_MAX where neither is known. `root` is / except in tests.
std::int64_t available_memory(const std::filesystem::path& root = "/");

}  // namespace coppice
