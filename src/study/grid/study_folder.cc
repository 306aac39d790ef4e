#include "study/grid/study_folder.h"

#include <algorithm>
#include <cstdint>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "study/files/appended_file.h"

namespace coppice::study {
namespace {

namespace fs = std::filesystem;
constexpr const char* lock_name = "lock";
constexpr std::uintmax_t largest_study_file = std::uintmax_t{256} << 20;

// A run that was killed before it wrote its settings leaves no more than this.
bool is_of_a_start(const fs::path& name) { return name == lock_name || is_unfinished(name); }

void refuse_other_content(const fs::path& path) {
  if (fs::exists(path / study_name)) return;
  for (const auto& entry : fs::directory_iterator(path)) {
    if (is_of_a_start(entry.path().filename())) continue;
    throw_usage(cat("--out ", quote(path.string()), ": the folder holds ",
                    quote(entry.path().filename().string()),
                    " and no study; name a new or empty folder"));
  }
}

StudyFile read_study_file(const fs::path& path) {
  return study_file_from(read_file(path, "study", largest_study_file), path.string());
}

}  // namespace

StudyFolder::StudyFolder(const fs::path& path) : path_(path) {
  try {
    fs::create_directories(path_);
    refuse_other_content(path_);
  } catch (const fs::filesystem_error& error) {
    throw_failure(cat("--out ", quote(path_.string()), ": ", error.code().message(),
                      "; name a folder that can be written"));
  }
  lock_ = open_locked(path_ / lock_name);
  if (lock_.get() >= 0) return;
  throw_usage(cat("--out ", quote(path_.string()),
                  ": another run is working in it; wait for its end or name another folder"));
}

void StudyFolder::settle(StudyFile& file) {
  const fs::path path = path_ / study_name;
  std::error_code ignored;
  // Settings without results bind nobody: what was wrong with them may be mended.
  const auto results = fs::file_size(path_ / results_name, ignored);
  const bool empty = ignored || results == 0;
  continued_ = fs::exists(path, ignored) && !empty;
  if (continued_) {
    const StudyFile before = read_study_file(path);
    std::string changes;
    for (const std::string& change : differences(before, file)) {
      changes += (changes.empty() ? "" : "; ") + change;
    }
    if (!changes.empty()) {
      throw_usage(cat("--out ", quote(path_.string()), " holds another study (", changes,
                      "); start with the settings it was begun with, or name another folder"));
    }
    add_missing(file, before);
  }
  write(file);
}

void StudyFolder::write(const StudyFile& file) const {
  write_file(path_ / study_name, to_text(file), resumes_when_free);
}

bool is_of_a_study(const fs::path& folder, const fs::path& path) {
  std::error_code error;
  const fs::path home = fs::weakly_canonical(folder, error);
  const fs::path resolved = fs::weakly_canonical(path, error);
  for (const char* name : {lock_name, study_name, results_name}) {
    if (fs::equivalent(home / name, resolved, error) && !error) return true;  // hard links too
  }
  const auto [end, rest] =
      std::mismatch(home.begin(), home.end(), resolved.begin(), resolved.end());
  if (end != home.end() || rest == resolved.end()) return false;
  const std::string name = rest->string();
  for (const char* own : {lock_name, study_name, results_name, prompts_name, "summary.csv",
                          "report.html", "figures", "tables"}) {
    if (name == own) return true;
  }
  const bool measured = name.starts_with("costs") || name.starts_with("acceptance");
  return measured && name.ends_with(".json");
}

StoredStudy read_study(const fs::path& folder) {
  const fs::path path = folder / study_name;
  std::error_code ignored;
  if (!fs::exists(path, ignored)) {
    throw_failure(cat(quote(folder.string()), ": it holds no study (no ", study_name,
                      "); name a folder that coppice study wrote"));
  }
  StudyFile file = read_study_file(path);
  Results results(folder / results_name, file.plan);
  return {folder, std::move(file), std::move(results)};
}

}  // namespace coppice::study
