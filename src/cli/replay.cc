// Judges policies anew over a recording.
#include <algorithm>
#include <charconv>
#include <exception>
#include <filesystem>
#include <iostream>
#include <sstream>
#include <system_error>

#include "cli/command.h"
#include "cli/options.h"
#include "cli/terminal.h"
#include "study/durable_file.h"
#include "study/replay_summary.h"
#include "tree_plan.h"

namespace coppice::cli {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> words_of(const std::string& option, const std::string& text) {
  std::vector<std::string> words;
  std::stringstream in(text);
  for (std::string word; std::getline(in, word, ',');) {
    if (!word.empty()) words.push_back(word);
  }
  if (words.empty()) throw_usage(cat("--", option, ": it is empty; name one or more, like a,b"));
  return words;
}

// Of a list whose order and repetitions mean nothing.
std::vector<std::string> choices_of(const std::string& option, const std::string& text) {
  std::vector<std::string> choices;
  for (const std::string& word : words_of(option, text)) {
    if (std::find(choices.begin(), choices.end(), word) == choices.end()) choices.push_back(word);
  }
  return choices;
}

std::int32_t size_of(const std::string& option, const std::string& word) {
  std::int32_t size = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), size);
  const bool whole = error == std::errc() && end == word.data() + word.size();
  if (!whole || size < 1 || size > largest_tree_size) {
    throw_usage(cat("--", option, " ", quote(word), ": use 1 to ", largest_tree_size,
                    word == "auto" ? "; automatic sizes weigh costs, which are not recorded" : ""));
  }
  return size;
}

template <typename Enum>
Enum named(const std::string& option, const std::string& word, std::initializer_list<Enum> all) {
  std::string names;
  for (const Enum value : all) {
    if (word == name_of(value)) return value;
    names += (names.empty() ? "" : ", ") + std::string(name_of(value));
  }
  throw_usage(cat("--", option, " ", quote(word), " is unknown; use some of ", names));
}

bool knows_tree(Policy policy) {
  return policy == Policy::static_tree || policy == Policy::sequoia;
}
bool knows_depth(Policy policy) {
  return policy == Policy::sequoia || policy == Policy::expand_rerank;
}

// An option that would change nothing is refused.
void check_belongs(const po::variables_map& values, const char* option,
                   const std::vector<Policy>& replayed, std::initializer_list<Policy> owners) {
  if (values.count(option) == 0 || values[option].defaulted()) return;
  std::string names;
  for (const Policy owner : owners) {
    if (std::find(replayed.begin(), replayed.end(), owner) != replayed.end()) return;
    names += (names.empty() ? "" : " or ") + std::string(name_of(owner));
  }
  throw_usage(cat("--", option, ": it belongs to policy ", names,
                  ", which is not replayed; leave it out, or name the policy in --policies"));
}

std::vector<Policy> policies_of(const po::variables_map& values) {
  std::vector<Policy> policies;
  for (const std::string& word : choices_of("policies", values["policies"].as<std::string>())) {
    policies.push_back(
        named("policies", word,
              {Policy::dyspec, Policy::dyspec_threshold, Policy::chain, Policy::static_tree,
               Policy::specinfer, Policy::sequoia, Policy::expand_rerank}));
  }
  check_belongs(values, "widths", policies, {Policy::specinfer});
  check_belongs(values, "tree", policies, {Policy::static_tree, Policy::sequoia});
  check_belongs(values, "tree-depth", policies, {Policy::sequoia, Policy::expand_rerank});
  check_belongs(values, "beam-width", policies, {Policy::expand_rerank});
  check_belongs(values, "threshold", policies, {Policy::dyspec_threshold});
  return policies;
}

// Writing goes through a file beside the one named.
void check_keeps(const fs::path& recording, const fs::path& csv) {
  fs::path beside = csv;
  beside += ".part";
  for (const fs::path& written : {csv, beside}) {
    std::error_code ignored;
    if (!fs::equivalent(recording, written, ignored)) continue;
    throw_usage(cat("--csv ", quote(csv.string()),
                    ": writing it would replace the recording; name another file"));
  }
}

// Every combination that the lists name; each option goes to the policies that know it.
std::vector<GenerateOptions> requests_of(const po::variables_map& values, double temperature) {
  std::vector<GenerateOptions> requests;
  GenerateOptions shared;
  shared.temperature = temperature;
  const auto has = [&](const char* name) { return values.count(name) != 0; };
  std::vector<std::int32_t> widths;
  if (has("widths")) {
    for (const std::string& word : words_of("widths", values["widths"].as<std::string>())) {
      widths.push_back(size_of("widths", word));
    }
  }
  for (const Policy policy : policies_of(values)) {
    GenerateOptions request = shared;
    request.policy = policy;
    bool fixed = false;
    if (request.policy == Policy::specinfer && !widths.empty()) {
      request.widths = widths;
      fixed = true;
    }
    if (knows_tree(request.policy) && has("tree")) {
      request.tree = values["tree"].as<std::string>();
      fixed = true;
    }
    fixed = fixed || request.policy == Policy::static_tree;
    if (knows_depth(request.policy) && !fixed) {
      request.tree_depth = values["tree-depth"].as<std::int32_t>();
    }
    if (request.policy == Policy::expand_rerank) {
      request.beam_width = values["beam-width"].as<std::int32_t>();
    }
    if (request.policy == Policy::dyspec_threshold) {
      request.threshold = values["threshold"].as<double>();
    }
    for (const std::string& size :
         choices_of("tree-sizes", values["tree-sizes"].as<std::string>())) {
      if (!fixed) request.tree_size = size_of("tree-sizes", size);
      for (const std::string& rule :
           choices_of("acceptance", values["acceptance"].as<std::string>())) {
        request.acceptance =
            named("acceptance", rule, {Acceptance::rejection, Acceptance::coupled});
        requests.push_back(request);
        if (temperature == 0.0) break;  // both follow the argmax
      }
      if (fixed) break;
    }
  }
  return requests;
}

}  // namespace

int replay(const std::vector<std::string>& arguments) {
  po::options_description what("Settings (lists: every combination is replayed)");
  what.add_options()("policies",
                     po::value<std::string>()->default_value("dyspec,chain")->value_name("P,P"),
                     "dyspec, dyspec-threshold, chain, static, specinfer, sequoia, expand-rerank")(
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
          "  coppice replay stories.rec --policies dyspec,chain --tree-sizes 4,16,64\n\n"
          "Columns: tokens judged good per step, the bonus token included, with its interval\n"
          "by bootstrap over prompts; bounds of that mean, for what was not recorded; accepted\n"
          "share of draft tokens; draft passes and draft tokens a step; steps whose tree was cut\n"
          "short, or with a decision left open, for want of records.\n",
          values, hidden, positional)) {
    return 0;
  }
  if (values.count("recording") == 0) {
    throw_usage("replay: no recording is named; give the file that coppice record wrote");
  }
  const std::int32_t seeds = values["seeds"].as<std::int32_t>();
  if (seeds < 1 || seeds > 100000) throw_usage(cat("--seeds ", seeds, ": use 1 to 100000"));
  const std::string file = values["recording"].as<std::string>();
  const bool has_csv = values.count("csv") != 0;
  if (has_csv) check_keeps(file, values["csv"].as<std::string>());
  const study::Recording recording = study::read_recording(file);
  const bool any = std::any_of(recording.texts.begin(), recording.texts.end(),
                               [](const study::RecordedText& t) { return t.length() > 0; });
  if (!any) {
    throw_failure(cat("recording ", quote(file), ": it holds no positions; record anew"));
  }
  const auto requests = requests_of(values, recording.header.target_params.temperature);
  const std::string missing = recording.missing();
  if (!missing.empty() || recording.torn) {
    std::cerr << "coppice: the recording " << missing
              << (recording.torn ? cat(missing.empty() ? "" : "; it ",
                                       "ends within a block, which was left out")
                                 : std::string())
              << "\n";
  }
  ProgressLine progress(true);
  const InterruptWatch interrupts;
  cpu::Workers workers(cpu::usable_threads());
  std::vector<study::ReplayRow> rows;
  std::vector<std::string> refused;  // each reason once
  for (std::size_t i = 0; i < requests.size() && !InterruptWatch::interrupted(); ++i) {
    progress.show("replaying", static_cast<double>(i) / static_cast<double>(requests.size()));
    try {
      rows.push_back(
          study::replay_all(recording, requests[i], seeds, InterruptWatch::interrupted, &workers));
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::usage) throw;
      // Of several combinations some may be refused; the rest stands.
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
  for (const std::string& why : refused) std::cerr << "coppice: left out: " << why << "\n";
  // Either output is made even where the other one fails.
  std::exception_ptr unwritten;
  try {
    write_out(study::replay_table(rows));
  } catch (...) {
    unwritten = std::current_exception();
  }
  if (has_csv) {
    study::write_file(values["csv"].as<std::string>(), study::replay_csv(rows),
                      "free some space and start again with another --csv");
  }
  if (unwritten) std::rethrow_exception(unwritten);
  return InterruptWatch::interrupted() ? interrupted_exit : 0;
}

}  // namespace coppice::cli
