// Judges policies anew over a recording.
#include "study/replay/replay.h"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <span>
#include <system_error>

#include "base/error.h"
#include "base/files.h"
#include "cli/command.h"
#include "cli/option_values.h"
#include "cli/options.h"
#include "cli/terminal.h"
#include "engine/check_speculation.h"
#include "kernels/cpu/workers.h"
#include "study/grid/grid.h"

namespace coppice::cli {
namespace {

namespace fs = std::filesystem;

// "dyspec-plain+lookup" of "dyspec+lookup"; of what learns nothing that does not replay, the name.
std::string plain_name(const std::string& name) {
  PolicyOptions options = study::policy_named(name);
  options.plain_values = options.drafts && takes(options.policy, PolicyOption::plain_values);
  return study::policy_name(options);
}

// As studies name them, but for plain decoding, which grows no trees, and policies that learn
// within a run, which a recording has none of.
std::vector<std::string> replayable() {
  std::vector<std::string> names = study::study_policy_names();
  std::erase_if(names, [](const std::string& name) {
    return name == name_of(Policy::none) || name != plain_name(name);
  });
  return names;
}

// A policy that learns is replayed by its plain values, which `notes` then say.
std::string replayed_as(const std::string& word, std::vector<std::string>& notes) {
  const std::vector<std::string> known = replayable();
  const auto is_known = [&](const std::string& name) {
    return std::ranges::find(known, name) != known.end();
  };
  if (is_known(word)) return word;
  const std::vector<std::string> all = study::study_policy_names();
  if (std::ranges::find(all, word) == all.end() || word == name_of(Policy::none)) {
    refuse_value("--policies", word, known);
  }
  const std::string plain = plain_name(word);
  notes.push_back(cat(word, " learns within a run, which does not replay: ", plain,
                      " is replayed in its place"));
  return plain;
}

std::int32_t size_of(const std::string& word) {
  if (word == "auto") {
    throw_usage(cat("--tree-sizes ", quote(word), ": use 1 to ", largest_tree_size,
                    "; automatic sizes weigh costs, which are not recorded"));
  }
  return number_in<std::int32_t>("tree-sizes", word, 1, largest_tree_size);
}

// Every combination that the lists name; each option goes to the policies that take it.
std::vector<GenerateOptions> requests_of(const po::variables_map& values, double temperature,
                                         std::vector<std::string>& notes) {
  const auto list = [&](const char* option, auto parse) {
    return choices_in(option, values[option].as<std::string>(), parse);
  };
  const auto names =
      list("policies", [&](const std::string& word) { return replayed_as(word, notes); });
  std::vector<Policy> policies;
  for (const std::string& name : names) policies.push_back(study::policy_named(name).policy);
  const auto sizes = list("tree-sizes", size_of);
  auto rules = list("acceptance", [](const std::string& word) {
    return named("acceptance", word, all_acceptances);
  });
  if (temperature == 0.0) rules.resize(1);  // both follow the argmax
  PolicyOptions given;
  read_tree_options(values, given);
  study::require_takers(given, policies);  // an option that would change nothing

  std::vector<GenerateOptions> requests;
  for (const std::string& name : names) {
    const PolicyOptions base = study::policy_named(name);
    const Policy policy = base.policy;
    PolicyOptions options = study::taken_by(policy, given);
    options.plain_values = base.plain_values;
    options.looks_up = base.looks_up;
    options.drafts = base.drafts;
    const bool fixed =
        !options.widths.empty() || !options.tree.empty() || policy == Policy::static_tree;
    for (const std::int32_t size : fixed ? std::vector<std::int32_t>{0} : sizes) {
      options.tree_size = size;
      GenerateOptions request;
      request.sampling.temperature = temperature;
      study::set_policy(request, options);
      for (const Acceptance rule : rules) {
        request.acceptance = rule;
        requests.push_back(request);
      }
    }
  }
  return requests;
}

}  // namespace

int replay(const std::vector<std::string>& arguments) {
  po::options_description what("Settings (lists: every combination is replayed)");
  std::string policies = "as coppice study names them: ";
  for (const std::string& name : replayable()) {
    if (!name.ends_with("+lookup")) policies += name + ", ";
  }
  policies +=
      "of which dyspec's are its plain ones, for what a run learns does not replay; these and "
      "chain also with +lookup";
  what.add_options()(
      "policies", po::value<std::string>()->default_value("dyspec-plain,chain")->value_name("P,P"),
      policies.c_str())(
      "tree-sizes", po::value<std::string>()->default_value("4,16,64")->value_name("N,N"),
      "draft tokens per target pass; chain: its length; dyspec-threshold: the cap")(
      "acceptance", po::value<std::string>()->default_value("rejection,coupled")->value_name("A,A"),
      "rejection, coupled; at temperature 0 both are the target's argmax")(
      "seeds", po::value<std::int32_t>()->default_value(4)->value_name("N"),
      "walks over each text under rejection")(
      "widths", po::value<std::string>()->value_name("3,2,1"), "specinfer, as in generate")(
      "tree", po::value<std::string>()->value_name("FILE"), "static, sequoia; as in generate")(
      "tree-depth", po::value<std::int32_t>()->default_value(0)->value_name("N"),
      "sequoia, expand-rerank; as in generate")(
      "beam-width", po::value<std::int32_t>()->default_value(0)->value_name("N"),
      "expand-rerank; as in generate")(
      "threshold", po::value<double>()->default_value(0.0, "0")->value_name("F"),
      "dyspec-threshold, which needs it; as in generate");
  po::options_description output("Output");
  output.add_options()("csv", po::value<std::string>()->value_name("FILE"),
                       "all figures as a file, too");
  po::options_description all, hidden;
  all.add(what).add(output);
  hidden.add_options()("recording", po::value<std::string>());
  po::positional_options_description positional;
  positional.add("recording", 1);
  po::variables_map values;
  if (!parse(
          arguments, all,
          "coppice replay FILE: judge policies anew over what coppice record kept\n\n"
          "  coppice replay stories.rec --policies dyspec-plain,chain --tree-sizes 4,16,64\n\n"
          "Columns: tokens kept per step, the bonus token included, with its interval by\n"
          "bootstrap over prompts (recordings ignore end tokens, so that none stands behind one);\n"
          "accepted share of draft tokens; draft passes (the prompt's left out) and draft tokens "
          "a\n"
          "step, with ~ if the policy grows by probability and not all nodes were recorded; steps\n"
          "whose tree has nodes that were not recorded, and those whose accepted path ended at\n"
          "such nodes. A recording holds so many children of each node (record --entries), which\n"
          "limits the widths of trees, and so many nodes at each position (record --nodes), which\n"
          "limits their sizes: a line below the table says which of the two was short.\n"
          "Sequoia's trees are planned for the recording's own acceptance, each fifth of the "
          "texts\n"
          "by the others, unless --tree names one.\n",
          values, hidden, positional)) {
    return 0;
  }
  if (values.count("recording") == 0) {
    throw_usage("replay: no recording is named; give the file that coppice record wrote");
  }
  const std::int32_t seeds = count_in(values, "seeds", 1, 100000);
  const std::string file = text_in(values, "recording"), csv = written_file_in(values, "csv", file);
  if (!csv.empty()) require_writable(csv);
  const study::Recording recording = study::read_recording(file);
  const bool any = std::any_of(recording.texts.begin(), recording.texts.end(),
                               [](const study::RecordedText& t) { return t.length() > 0; });
  if (!any) {
    throw_failure(cat("recording ", quote(file), ": it holds no positions; record anew"));
  }
  std::vector<std::string> notes;
  const auto requests = requests_of(values, recording.header.target_params.temperature, notes);
  const std::string missing = recording.missing();
  if (!missing.empty() || recording.torn) {
    tell(cat("the recording ", missing,
             recording.torn
                 ? cat(missing.empty() ? "" : "; it ", "ends within a block, which was left out")
                 : std::string()));
  }
  ProgressLine progress;
  const InterruptWatch interrupts;
  std::vector<study::ReplayRow> rows;
  std::vector<std::string> refused;  // each reason once
  for (std::size_t i = 0; i < requests.size() && !InterruptWatch::interrupted(); ++i) {
    progress.show("replaying", static_cast<double>(i) / static_cast<double>(requests.size()));
    try {
      rows.push_back(study::replay_all(recording, requests[i], seeds, InterruptWatch::interrupted,
                                       cpu::usable_threads()));
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::usage) throw;
      // Some of several combinations may be refused; the rest stands.
      if (std::find(refused.begin(), refused.end(), error.what()) == refused.end()) {
        refused.emplace_back(error.what());
      }
    }
  }
  progress.clear();
  if (InterruptWatch::interrupted() && !rows.empty()) rows.pop_back();  // cut short
  if (rows.empty()) {
    if (InterruptWatch::interrupted()) return interrupted_exit;
    throw_usage(refused.front());
  }
  for (const std::string& note : notes) tell(note);
  for (const std::string& why : refused) tell(cat("left out: ", why));
  // Either output is made even where the other one fails.
  std::exception_ptr unwritten;
  try {
    std::string text = to_text(study::replay_table(rows));
    for (const std::string& note : study::replay_notes(rows, recording.header)) text += note + "\n";
    write_out(text);
  } catch (...) {
    unwritten = std::current_exception();
  }
  if (!csv.empty()) {
    write_file(csv, to_csv(study::replay_csv(rows)),
               "free some space and start again with another --csv");
  }
  if (unwritten) std::rethrow_exception(unwritten);
  return InterruptWatch::interrupted() ? interrupted_exit : 0;
}

}  // namespace coppice::cli
