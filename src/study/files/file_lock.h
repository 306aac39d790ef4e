// One process at a time.
#pragma once

#include <filesystem>

#include "base/files.h"

namespace coppice::study {

/// Opens `path`, creating it if it is missing, and locks it until the handle is gone (the system
/// unlocks it when the process ends, however it ends). A handle without a descriptor: another one
/// holds it. Throws Error(failure) if it cannot be opened or locked.
FileHandle open_locked(const std::filesystem::path& path);

}  // namespace coppice::study
