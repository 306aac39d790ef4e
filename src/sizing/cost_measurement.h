// Measuring what passes cost, as quickly and as firmly as a shared machine allows.
#pragma once

#include <cstdint>
#include <optional>
#include <stop_token>

#include "kernels/device_sampler.h"
#include "models/loaded_model.h"
#include "sizing/cost_table.h"

namespace coppice {

/// Rows of a tree and its root, and of the largest pass.
struct MeasuredRows {
  std::int32_t tree = 1, pass = 1;
};

/// Times passes of growing row counts over free slots of the pools, as a step runs them: the
/// target's after passes of the draft (whose weights have then pushed some of the target's out of
/// the caches) and the other way round; one target row also alone, as plain decoding runs it.
/// All rows are timed round for round and the least times count. No more rows once half of
/// `budget_seconds`, or of 250 passes if these are longer (up to 1.5 s), is spent, and no more
/// rounds, at least two, once it is all spent, or twice that while rounds still differ. If the
/// device samples (`sampler` not null), passes are timed with drawing or judging behind them.
/// Up to `rows.tree` rows sizes are measured closely; beyond, if several texts share passes, at a
/// few points and one prefix. If it is asked to stop, it does between two passes, and nothing comes
/// of it.
std::optional<CostTable> measure_costs(const LoadedModel& target, const LoadedModel& draft,
                                       DeviceSampler* sampler, const MeasuredRows& rows,
                                       double budget_seconds, const std::stop_token& stop = {});

enum class TableCheck {
  holds,
  /// Passes took longer than the table says while other programs took processors from this one: the
  /// table may be right, and a measurement now would be wrong.
  disturbed,
  differs,
};
/// Compares a table with a few passes of both models. It holds if costs against one another are
/// within a factor of 1.4, and all within 2. Takes about 10 ms of small models, up to 60 if it does
/// not hold. If it is asked to stop, the table differs.
TableCheck check_table(const CostTable& table, const LoadedModel& target, const LoadedModel& draft,
                       DeviceSampler* sampler, const MeasuredRows& rows,
                       const std::stop_token& stop = {});

/// Whether the pools have free slots enough to measure in; and for all that is to be measured:
/// else the table is cut (CostTable::cut).
bool can_measure(const LoadedModel& target, const LoadedModel& draft);
/// How many slots of its pool that takes for this model.
std::int32_t slots_to_measure_all(const LoadedModel& loaded, const MeasuredRows& rows);
bool can_measure_all(const LoadedModel& target, const LoadedModel& draft, const MeasuredRows& rows);

}  // namespace coppice
