// What a study's sequoia cells plan their trees for.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "study/acceptance/acceptance.h"
#include "study/grid/grid.h"

namespace coppice::study {

/// Acceptance vectors of a study: out of the file that the request names, else measured on
/// calibration_prompts(), so that no prompt of the study is planned for, and kept in a file.
class CellAcceptance {
 public:
  /// Reads the request's file, or `kept`, an earlier run's. Throws as read_measured_pair(), and
  /// Error(usage) if it is another pair's; and of the request's if it was measured on the study's
  /// prompts, lacks a setting, or is named for cells that plan no tree.
  CellAcceptance(const StudyRequest& request, const std::filesystem::path& kept);

  /// Measures what is needed and not there, and writes it. False: stopped.
  bool give(Engine& engine, const StudyHooks& hooks);
  /// What each cell asks for, by Cell::key(), with the vectors of those that plan trees.
  std::map<std::string, GenerateOptions> requests() const;
  /// Adds a line for each vector that is used, for people.
  void add_notes(std::vector<std::string>& notes) const;

 private:
  const StudyRequest& request_;
  std::vector<GenerateOptions> settings_;  ///< that are planned for
  std::filesystem::path file_;
  std::optional<MeasuredPair> pair_;
};

}  // namespace coppice::study
