#include "cli/study_folders.h"

#include <filesystem>

#include "base/error.h"
#include "cli/options.h"
#include "cli/study_output.h"
#include "cli/terminal.h"
#include "study/study.h"

namespace coppice::cli {
namespace {

/// Options and folders of a command over studies.
struct Words {
  po::variables_map values;
  std::vector<std::filesystem::path> folders;
};

/// False: help was printed.
bool read_words(const std::vector<std::string>& arguments, const std::string& usage, Words& words) {
  po::options_description options("Options"), hidden;
  options.add_options()(
      "format", po::value<std::string>()->default_value("text")->value_name("text|latex|csv"),
      "of the tables printed");
  hidden.add_options()("folder", po::value<std::vector<std::string>>());
  po::positional_options_description positional;
  positional.add("folder", -1);
  if (!parse(arguments, options, usage, words.values, hidden, positional)) return false;
  if (words.values.count("folder") != 0) {
    for (const auto& folder : words.values["folder"].as<std::vector<std::string>>()) {
      words.folders.emplace_back(folder);
    }
  }
  return true;
}

}  // namespace

int study_compare(const std::vector<std::string>& arguments) {
  Words words;
  if (!read_words(arguments,
                  "coppice study compare DIR DIR: the settings that two studies have in common, "
                  "side by side,\npaired on the prompts that both have\n",
                  words)) {
    return 0;
  }
  const TableFormat format = table_format(words.values["format"].as<std::string>());
  if (words.folders.size() != 2) {
    throw_usage(cat("study compare: ", words.folders.size(), " folders; name two studies"));
  }
  const study::StoredStudy first = study::read_study(words.folders[0]);
  const study::StoredStudy second = study::read_study(words.folders[1]);
  write_out(tables_text(compare_studies(first, second), format));
  return 0;
}

int study_merge(const std::vector<std::string>& arguments) {
  Words words;
  if (!read_words(arguments,
                  "coppice study merge NEW DIR DIR...: one study, in a new folder, of all results "
                  "of several,\nwhich must share all options but prompts, settings and rounds\n",
                  words)) {
    return 0;
  }
  const TableFormat format = table_format(words.values["format"].as<std::string>());
  if (words.folders.empty()) throw_usage("study merge: no folders; name a new one, then studies");
  const std::filesystem::path out = words.folders.front();
  const study::MergeOutcome merged =
      study::merge_studies({words.folders.begin() + 1, words.folders.end()}, out);
  if (merged.twice > 0) {
    tell(cat(merged.twice, " results stand in several studies; those of the first were taken"));
  }
  write_out(tables_text(merged.study, format));
  write_out(cat("\n", printable((out / "report.html").string()), "\n"));
  return 0;
}

}  // namespace coppice::cli
