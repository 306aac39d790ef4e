// Measured costs kept from one start to the next, in the user's cache folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "coppice.h"
#include "models/loaded_model.h"
#include "sizing/cost_table.h"

namespace coppice {

/// coppice's folder in XDG_CACHE_HOME if that is an absolute path (as its specification demands),
/// else in HOME/.cache. Empty without either: nothing is kept then.
std::filesystem::path cost_cache_folder();

/// All that a table depends on: this build, device, types, threads, both models (the names, sizes
/// and times of their weight files; their config), rows and KV slots. No weights are read for it.
std::string cost_cache_key(const EngineOptions& options, const LoadedModel& target,
                           const LoadedModel& draft);

/// The table that was kept under this key. nullopt if there is none, or a file that is foreign,
/// damaged or cannot be read: costs are then measured anew.
std::optional<CostTable> cached_costs(const std::filesystem::path& folder, const std::string& key);

/// What of a kept table and one that was measured because the kept one no longer seemed to hold is
/// worth keeping. Other programs' work only adds to costs, so the least of both, pass by pass: a
/// busy start spoils no good table. After several such starts without one that confirms it
/// (doubts), the machine has changed, and the measured table is kept.
CostTable table_to_keep(const CostTable& kept, const CostTable& measured);

/// Keeps a table, and of older ones the newest 100. A folder that cannot be written to keeps
/// nothing, which is no error.
void cache_costs(const std::filesystem::path& folder, const std::string& key, CostTable table);

}  // namespace coppice
