// What a study's sequoia cells plan their trees for.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "study/acceptance/acceptance.h"
#include "study/grid/cell.h"
#include "study/grid/settings.h"

namespace coppice::study {

/// Whether the cell's tree is planned: sequoia without a grow map.
bool needs_acceptance(const Cell& cell);

/// Acceptance vectors of a study: out of the file that the request names, else measured on
/// calibration_prompts(), so that no prompt of the study is planned for, and kept in a file.
class CellAcceptance {
 public:
  /// Of the cells of one pair. Reads the request's file, or the one that an earlier run kept in
  /// `folder`. Throws as read_measured_pair(), and Error(usage) if its pair is the wrong one, and
  /// of the request's if it was measured on the study's prompts, lacks a setting, or is named for
  /// several pairs or for cells that plan no tree.
  CellAcceptance(const StudyRequest& request, const ModelPair& pair,
                 const std::filesystem::path& folder);

  /// Measures what is needed and not there, and writes it. False: stopped.
  bool give(Engine& engine, const StudyHooks& hooks);
  /// What each cell of the pair asks for, by Cell::key(), with the vectors of those that plan
  /// trees.
  std::map<std::string, GenerateOptions> requests() const;
  /// Adds a line for each vector that is used, for people.
  void add_notes(std::vector<std::string>& notes) const;

 private:
  std::vector<GenerateOptions> settings() const;
  std::string prompts_text() const;

  const StudyRequest& request_;
  std::string name_;  ///< of the pair
  std::filesystem::path file_;
  std::optional<MeasuredPair> pair_;
};

}  // namespace coppice::study
