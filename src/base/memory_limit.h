// How much memory this process may still use.
#pragma once

#include <cstdint>
#include <filesystem>

namespace coppice {

/// The least of the system's available memory, of what the process's control groups leave (of
/// either version, with those that they are nested in), and of its address space; bytes. INT64_MAX
/// if nothing is known. `root` is / except in tests.
std::int64_t available_memory(const std::filesystem::path& root = "/");

}  // namespace coppice
