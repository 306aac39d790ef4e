// What of all settings in a folder is obeyed, for `coppice info`.
#pragma once

#include <filesystem>

#include "models/config.h"
#include "models/settings/setting_file.h"

namespace coppice {

/// Reads all setting files of a folder. `config` is what was read of it, its head settled. Throws
/// Error(failure) for a file that cannot be read.
SettingNotes folder_notes(const std::filesystem::path& dir, const ModelConfig& config);

}  // namespace coppice
