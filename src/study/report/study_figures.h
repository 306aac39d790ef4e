// The figures of a study.
#pragma once

#include <string>
#include <vector>

#include "study/grid/results.h"
#include "study/report/summary.h"

namespace coppice::study {

struct NamedFigure {
  std::string name;  ///< of its file, without extension; unique in a report
  std::string svg;
  std::string caption;
};

struct NamedSection {
  std::string heading;
  std::vector<NamedFigure> figures;
};

/// For each temperature and acceptance rule: accepted length and speed-up against tree size, where
/// the time goes (DySpec, figure 4), acceptance and target probability against draft probability
/// (figure 2), calibration by estimate, depth and rank, and of the chances that trees grew by,
/// accepted length against the number that judges, and the steps of one generation (figure 5).
/// What has no data is left out.
std::vector<NamedSection> report_sections(const Summary& summary, const Results& results);

}  // namespace coppice::study
