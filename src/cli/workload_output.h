// What `coppice workload` prints.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "workload/motion.h"
#include "workload/plan_model.h"
#include "workload/replay.h"

namespace coppice::cli {

/// All that is known of one run of the command.
struct WorkloadFigures {
  std::string kind, file;  ///< no file: ""
  std::size_t trees = 0;
  std::size_t left_out = 0;  ///< incomplete ones of the file
  workload::Reads reads;     ///< of all
  std::vector<std::pair<std::string, workload::Reads>> of_trees;
  std::optional<workload::Plan> plan;  ///< none for speculation
  workload::PlanReads plan_reads;
  // Figures of the engine, if there was one:
  std::optional<workload::ReplayReport> replay;
  bool sharing = true;
  double kv_bytes = 0.0;  ///< of a token, in the target
  std::string device, dtype, kv_dtype;
  workload::Plan engine_plan = workload::Plan::flatten;  ///< that its attention ran by
};

/// A line of the text, empty of texts without a draft.
std::string accepted_line(const workload::Accepted& accepted);

std::string workload_text(const WorkloadFigures& figures);
/// One object, and a line's end.
std::string workload_json(const WorkloadFigures& figures);

}  // namespace coppice::cli
