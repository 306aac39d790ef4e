#pragma once

#include <cstdint>
#include <filesystem>

namespace coppice {

/// Returns the bytes that are free on the disk of a folder, or of the nearest one above it that is
/// there; the greatest number if it cannot be told.
std::int64_t free_of_disk(std::filesystem::path folder);

}  // namespace coppice
