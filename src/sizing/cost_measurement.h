// Measuring what passes cost, as quickly and as firmly as a shared machine allows.
#pragma once

#include <cstdint>

#include "kernels/device_sampler.h"
#include "models/loaded_model.h"
#include "sizing/cost_table.h"

namespace coppice {

/// Times passes of growing row counts over free slots of the pools, as a step runs them: the
/// target's after passes of the draft (whose weights have then pushed some of the target's out of
/// the caches) and the other way round; one target row also alone, as plain decoding runs it.
/// All rows are timed round for round and the least times count. No more rows once half of
/// `budget_seconds`, or of 250 passes if these are longer (up to 1.5 s), is spent, and no more
/// rounds, at least two, once it is all spent, or twice that while rounds still differ. If the
/// device samples (`sampler` not null), passes are timed with drawing or judging behind them.
CostTable measure_costs(const LoadedModel& target, const LoadedModel& draft, DeviceSampler* sampler,
                        std::int32_t most_rows, double budget_seconds);

/// Whether a table agrees with a few passes of both models: costs against one another within a
/// factor of 1.4, and all within 2. Takes about 10 ms of small models, up to 60 if it does not.
bool still_holds(const CostTable& table, const LoadedModel& target, const LoadedModel& draft,
                 DeviceSampler* sampler, std::int32_t most_rows);

/// Whether the pools have free slots enough to measure in.
bool can_measure(const LoadedModel& target, const LoadedModel& draft);

}  // namespace coppice
