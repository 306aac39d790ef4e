// The folder that a study's results live in.
#pragma once

#include <filesystem>

#include "base/files.h"
#include "study/grid/study_file.h"

namespace coppice::study {

/// The file of results in the folder.
inline constexpr const char* results_name = "results.jsonl";
/// The study's own description (study_file.h), and the prompts that it asks (prompts.h reads them).
inline constexpr const char* study_name = "study.json";
inline constexpr const char* prompts_name = "prompts.jsonl";

/// Whether a study keeps something of its own under this path in its folder, so that no other
/// output may be written there.
bool is_of_a_study(const std::filesystem::path& folder, const std::filesystem::path& path);

/// Holds the folder for this process alone, and makes sure that all results in it belong together.
class StudyFolder {
 public:
  /// Creates the folder if it is missing and locks it until this object is gone (the system
  /// unlocks it when the process ends, however it ends). Throws Error(usage) for a folder that
  /// another run holds or that holds something other than a study; Error(failure) if it cannot
  /// be written.
  explicit StudyFolder(const std::filesystem::path& path);

  /// Writes study.json, with the pairs, trees and runs that stood there added to `file`. Throws
  /// Error(usage) that names every difference from it which results do not allow.
  void settle(StudyFile& file);
  void write(const StudyFile& file) const;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path file(const std::string& name) const { return path_ / name; }
  /// Whether results were there before.
  bool continued() const { return continued_; }

 private:
  std::filesystem::path path_;
  FileHandle lock_;
  bool continued_ = false;
};

/// A study as it stands in a folder, which is not changed.
struct StoredStudy {
  std::filesystem::path path;
  StudyFile file;
  Results results;
};

/// Throws Error(failure) if the folder holds no study, or a damaged one. A run may be working
/// there.
StoredStudy read_study(const std::filesystem::path& folder);

}  // namespace coppice::study
