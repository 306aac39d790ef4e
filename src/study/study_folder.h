// The folder that a study's results live in.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>

#include "base/files.h"

namespace coppice::study {

/// The file of results in the folder (results_store.h).
inline constexpr const char* results_name = "results.jsonl";

/// Holds the folder for this process alone, and makes sure that all runs in it are of one study.
class StudyFolder {
 public:
  /// Creates the folder where it is missing and locks it until this object is gone (the system
  /// unlocks it when the process ends, however it ends). Throws Error(usage) for a folder that
  /// another run holds or that holds something other than a study; Error(failure) where it cannot
  /// be written.
  explicit StudyFolder(const std::filesystem::path& path);

  /// `settings` is an object of all that defines the study. The first time it is written to
  /// study.json; later it must be the same. Throws Error(usage) that names the first difference.
  void settle(const nlohmann::ordered_json& settings);

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path file(const char* name) const { return path_ / name; }
  /// Whether study.json was there before.
  bool continued() const { return continued_; }

 private:
  std::filesystem::path path_;
  FileHandle lock_;
  bool continued_ = false;
};

}  // namespace coppice::study
