// The figures of a study.
#pragma once

#include <cstddef>
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

struct FigureGroup {
  const Summary* summary = nullptr;
  const Results* results = nullptr;
  std::string pair = {};
  double temperature = 0.0;
  Acceptance acceptance = Acceptance::rejection;
  std::vector<const SummaryRow*> rows = {};  ///< speculative ones
  const SummaryRow* plain = nullptr;
  std::vector<std::string> policies = {};  ///< of the whole study, in its order

  std::string heading() const;
  NamedFigure named(const std::string& what, std::string svg, std::string caption) const;
  /// The number of a policy's style, the same in every group.
  std::size_t style(const std::string& policy) const;
  /// The policy's row of the largest trees; nullptr where the group has none of it.
  const SummaryRow* largest(const std::string& policy) const;
  /// "24 prompts".
  std::string prompts() const;
};

// Each leaves out what there is no data for.

/// Accepted length and speed-up against tree size.
std::vector<NamedFigure> figures_by_size(const FigureGroup& group);
/// How steps went: accepted lengths, acceptance by depth, where the time went (DySpec, figure 4),
/// and one text step by step (DySpec, figure 5).
std::vector<NamedFigure> figures_of_steps(const FigureGroup& group);
/// Settings against each other, prompt by prompt.
std::vector<NamedFigure> figures_of_pairs(const FigureGroup& group);
/// How good the draft is: acceptance and target probability against its probability (DySpec, figure
/// 2), calibration by estimate, and by depth and rank.
std::vector<NamedFigure> figures_of_draft(const FigureGroup& group);

/// Rates of fewer cases are left out of figures.
inline constexpr std::int64_t least_counted = 20;

}  // namespace coppice::study
