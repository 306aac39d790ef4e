// study.json: what a study's folder holds results of.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "study/grid/provenance.h"
#include "study/grid/results.h"
#include "study/grid/settings.h"

namespace coppice::study {

struct StudyFile {
  /// What all results of a folder share, by name: the options that change a figure, and the
  /// program's version.
  nlohmann::ordered_json fixed = nlohmann::ordered_json::object();
  /// By name of the pair, "" included: {"target": {"path", "fingerprint"}, "draft": the same or
  /// null}. More may be added; paths may change where fingerprints do not.
  nlohmann::ordered_json pairs = nlohmann::ordered_json::object();
  /// Tree files by path, with fingerprints. More may be added.
  nlohmann::ordered_json trees = nlohmann::ordered_json::object();
  std::string prompts_file;      ///< for people
  StudyPlan plan;                ///< what was asked for last; the folder may hold results of more
  std::vector<Provenance> runs;  ///< oldest first
  /// What sequoia's trees were planned for, a line each; for people. acceptance.json has the
  /// vectors.
  std::vector<std::string> notes;
};

/// Reads model folders and tree files; throws Error(failure) if it cannot. Without runs.
StudyFile study_file_of(const StudyRequest& request);

std::string to_text(const StudyFile& file);
/// `where` names the text in messages. Throws Error(failure) for anything that to_text() does not
/// make, and says so for the format of an earlier version.
StudyFile study_file_from(const std::string& text, const std::string& where);

/// What results of `before` and `now` may not differ in and do, by name and with both values:
/// "max_new_tokens: it was 64, now 128"; empty if nothing. Pairs and trees that only one of them
/// has are no difference.
std::vector<std::string> differences(const StudyFile& before, const StudyFile& now);

/// Pairs, trees and runs of `other` that `file` lacks are added to it.
void add_missing(StudyFile& file, const StudyFile& other);

/// For the head of a report: models, prompts, options, and where and when the runs were made.
Facts facts_of(const StudyFile& file);

}  // namespace coppice::study
