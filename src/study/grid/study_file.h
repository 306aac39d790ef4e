// study.json: what a study's folder holds results of, and when, where and by what program they were
// made.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "coppice.h"
#include "study/files/member_list.h"
#include "study/grid/results.h"
#include "study/grid/settings.h"

namespace coppice::study {

/// One run of the program. A study that was continued or extended has several.
struct Provenance {
  std::string date;             ///< of its start, UTC: "2026-11-22T19:45:49Z"
  std::string version;          ///< coppice's
  std::string build;            ///< "Release, GNU 12.2.0"
  std::string command;          ///< as a shell takes it
  std::string pair;             ///< Cell::pair
  std::string device, dtype;    ///< as results name them: "cpu", "bf16"
  std::string kv_dtype;         ///< of keys and values
  std::string card;             ///< the GPU's product name; empty on a CPU
  std::string cpu;              ///< the CPU's model
  std::string instruction_set;  ///< in force on the CPU, capped or not: "avx512_bf16"
  int threads = 0;              ///< of each engine
  int jobs = 1;

  bool operator==(const Provenance&) const = default;
  COPPICE_MEMBERS(date, version, build, command, pair, device, dtype, kv_dtype, card, cpu,
                  instruction_set, threads, jobs)
};

/// Of a run that begins now.
Provenance provenance_of(Engine& engine, const std::string& command, const std::string& pair,
                         int jobs);

/// Names and values, in order, for people.
using Facts = std::vector<std::pair<std::string, std::string>>;

/// What the runs have in common once, what differs with each of its values.
Facts facts_of(const std::vector<Provenance>& runs);

/// A model folder or a tree's file, known by its contents.
struct StudyInput {
  std::string path;         ///< "none" for a draft that a pair does not have
  std::string fingerprint;  ///< likewise
  bool is_model = false;

  COPPICE_MEMBERS(path, fingerprint, is_model)
};

/// "target" or "draft", of a pair that has a name with that.
std::string model_name(const char* role, const std::string& pair);

struct StudyFile {
  /// What all results of a folder share, by name: the options that change a figure, and the
  /// program's version.
  nlohmann::json fixed = nlohmann::json::object();
  /// By model_name(), or "tree FILE". More may be added; paths may change where fingerprints do not.
  std::map<std::string, StudyInput> inputs;
  std::string prompts_file;      ///< for people
  StudyPlan plan;                ///< what was asked for last; the folder may hold results of more
  std::vector<Provenance> runs;  ///< oldest first
  /// What sequoia's trees were planned for, a line each; for people. acceptance.json has the
  /// vectors.
  std::vector<std::string> notes;

  COPPICE_MEMBERS(fixed, inputs, prompts_file, notes, plan, runs)
};

/// Reads model folders and tree files; throws Error(failure) if it cannot. Without runs.
StudyFile study_file_of(const StudyRequest& request);

std::string to_text(const StudyFile& file);
/// `where` names the text in messages. Throws Error(failure) for anything that to_text() does not
/// make, and says so for the format of an earlier version.
StudyFile study_file_from(const std::string& text, const std::string& where);

/// What results of `before` and `now` may not differ in and do, by name and with both values:
/// "max_new_tokens: it was 64, now 128"; empty if nothing. Inputs that only one of them has are no
/// difference.
std::vector<std::string> differences(const StudyFile& before, const StudyFile& now);

/// Inputs and runs of `other` that `file` lacks are added to it.
void add_missing(StudyFile& file, const StudyFile& other);

/// For the head of a report: models, prompts, options, and where and when the runs were made.
Facts facts_of(const StudyFile& file);

}  // namespace coppice::study
