// study.json: what a study's folder holds results of, and when, where and by what program they were
// made; and the folder.
#pragma once

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/files.h"
#include "coppice.h"
#include "study/files/member_list.h"
#include "study/grid/grid.h"
#include "study/grid/results.h"

namespace coppice::study {

/// One run of the program. A study that was continued or extended has several.
struct Provenance {
  std::string id;               ///< by which results name it
  std::string date;             ///< of its start, UTC: "2026-11-22T19:45:49Z"
  std::string version;          ///< coppice's
  std::string commit;           ///< that it was built from: build_commit()
  std::string build;            ///< "Release, GNU 12.2.0"
  std::string command;          ///< as a shell takes it
  std::string device, dtype;    ///< as results name them: "cpu", "bf16"
  std::string kv_dtype;         ///< of keys and values
  std::string card;             ///< the GPU's product name; empty on a CPU
  std::string cpu;              ///< the CPU's model
  std::string instruction_set;  ///< in force on the CPU, capped or not: "avx512_bf16"
  int threads = 0;

  bool operator==(const Provenance&) const = default;
  COPPICE_MEMBERS(id, date, version, commit, build, command, device, dtype, kv_dtype, card, cpu,
                  instruction_set, threads)
};

/// Describes a run that begins now.
Provenance provenance_of(Engine& engine, const std::string& command);

/// Names and values, in order, for people.
using Facts = std::vector<std::pair<std::string, std::string>>;

/// A model folder or a tree's file, known by its contents.
struct StudyInput {
  std::string path;         ///< "none" for a draft that there is not
  std::string fingerprint;  ///< likewise
  bool is_model = false;

  COPPICE_MEMBERS(path, fingerprint, is_model)
};

struct StudyFile {
  /// What all results of a folder share, by name: the options that change a figure, and the
  /// program's version.
  nlohmann::json fixed = nlohmann::json::object();
  /// "target", "draft", or "tree FILE". More may be added; paths may change where fingerprints do
  /// not.
  std::map<std::string, StudyInput> inputs;
  std::string prompts_file;      ///< for people
  StudyPlan plan;                ///< what was asked for last; the folder may hold results of more
  std::vector<Provenance> runs;  ///< oldest first
  /// What sequoia's trees were planned for, a line each; for people. acceptance.json has the
  /// vectors.
  std::vector<std::string> notes;
  std::vector<std::string> left_out;  ///< settings that were asked for and are none, and why

  COPPICE_MEMBERS(fixed, inputs, prompts_file, notes, left_out, plan, runs)
};

/// Reads model folders and tree files; throws Error(failure) if it cannot. Without runs.
StudyFile study_file_of(const StudyRequest& request);

std::string to_text(const StudyFile& file);
/// `where` names the text in messages. Throws Error(failure) for anything that to_text() does not
/// make, and says so for the format of an earlier version.
StudyFile study_file_from(const std::string& text, const std::string& where);

struct Difference {
  std::string name, before, now;
};
/// What results of `before` and `now` may not differ in and do. Inputs that only one of them has
/// are no difference.
std::vector<Difference> differences(const StudyFile& before, const StudyFile& now);
/// "max_new_tokens: it was 64, now 128; ...".
std::string words_of(const std::vector<Difference>& differences);

/// Adds what `all` lacks, told apart by `key_of`.
template <typename One, typename KeyOf = std::identity>
void add_missing(std::vector<One>& all, const std::vector<One>& more, const KeyOf& key_of = {}) {
  for (const One& one : more) {
    const auto is_like = [&](const One& other) { return key_of(other) == key_of(one); };
    if (std::ranges::none_of(all, is_like)) all.push_back(one);
  }
}
/// Inputs and runs of `other` that `file` lacks are added to it.
void add_missing(StudyFile& file, const StudyFile& other);

/// For the head of a report: models, prompts, options, and where and when the runs were made: what
/// they have in common once, what differs with each of its values.
Facts facts_of(const StudyFile& file);

// The folder that a study's results live in.

/// The file of results in the folder.
inline constexpr const char* results_name = "results.jsonl";
/// The study's own description (study_file.h), and the prompts that it asks (prompts.h reads them).
inline constexpr const char* study_name = "study.json";
inline constexpr const char* prompts_name = "prompts.jsonl";
/// Stands in a folder as long as a merge writes it.
inline constexpr const char* merge_lock_name = "merging";
/// Measured costs, and acceptance by rank, if no other files are named for them.
inline constexpr const char* costs_name = "costs.json";
inline constexpr const char* acceptance_name = "acceptance.json";

/// Holds the folder for this process alone, and makes sure that all results in it belong together.
class StudyFolder {
 public:
  /// Creates the folder if it is missing and locks it until this object is gone (the system
  /// unlocks it when the process ends, however it ends). `anew`: what a killed merge left there is
  /// removed, and nothing else may be there. Throws Error(usage) for a folder that another run
  /// holds or that holds something else; Error(failure) if it cannot be written.
  explicit StudyFolder(const std::filesystem::path& path, bool anew = false);

  /// Writes study.json, with the trees and runs that stood there added to `file`. Throws
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
