// Measures a pair's acceptance by sibling rank, and plans Sequoia's trees for it.
#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <optional>

#include "base/files.h"
#include "cli/chosen_prompts.h"
#include "cli/command.h"
#include "cli/option_values.h"
#include "cli/options.h"
#include "cli/terminal.h"
#include "drafting/sequoia.h"
#include "study/acceptance/acceptance.h"

namespace coppice::cli {
namespace {

using study::MeasuredAcceptance;
using study::MeasuredPair;

constexpr std::int32_t usual_tree_size = 64, usual_tree_depth = 10;
constexpr std::int32_t most_ranks = 256;  // four layers of them are the largest tree

// What is measured: every temperature with every rule, both being one at temperature 0.
std::vector<GenerateOptions> settings_of(const po::variables_map& values) {
  GenerateOptions base;
  read_filters(values, base.sampling);
  base.seed = number_in<std::uint64_t>("seed", values["seed"].as<std::string>());
  base.add_bos = values.count("no-bos") == 0;
  if (values.count("draft-temperature") != 0) {
    base.draft_temperature = values["draft-temperature"].as<double>();
  }
  const auto temperatures =
      choices_in("temperatures", values["temperatures"].as<std::string>(),
                 [](const std::string& text) { return number_in<double>("temperatures", text); });
  const auto rules = choices_in(
      "acceptance", values["acceptance"].as<std::string>(),
      [](const std::string& text) { return named("acceptance", text, all_acceptances); });
  std::vector<GenerateOptions> settings;
  for (const double temperature : temperatures) {
    for (const Acceptance rule : rules) {
      if (temperature == 0.0 && rule != rules.front()) continue;
      base.sampling.temperature = temperature;
      base.acceptance = temperature == 0.0 ? Acceptance::rejection : rule;
      base.validate();
      settings.push_back(base);
    }
  }
  return settings;
}

// What took minutes to measure is not replaced; devices and pipes are written into.
void require_new(const char* option, const std::string& file) {
  if (file.empty()) return;
  std::error_code ignored;
  if (std::filesystem::is_regular_file(file, ignored)) {
    throw_usage(cat(option, " ", quote(file), ": the file is there already; remove it or name ",
                    "another"));
  }
  require_writable(file);
}

// The setting of `file` that the options name; without --temperatures, the only one.
const MeasuredAcceptance& setting_to_plan_for(const po::variables_map& values,
                                              const std::string& file, const MeasuredPair& pair,
                                              const GenerateOptions& asked) {
  if (file.empty() || !values["temperatures"].defaulted()) {
    return study::setting_for(file, pair, asked);
  }
  if (pair.settings.size() == 1) return pair.settings.front();
  throw_usage(cat("--acceptance-vector ", quote(file), ": it holds several settings (",
                  study::words_of(pair.settings),
                  "); name one with --temperatures and --acceptance"));
}

// The table of one setting: its vector, and what trees of a few sizes may expect of it.
std::string described(const MeasuredAcceptance& setting, std::int32_t tree_depth) {
  std::string text = cat("\n", study::words_of(setting), ", ", setting.judged.front(),
                         " nodes judged\n  rank      accepted   given all before were rejected\n");
  char line[120];
  for (std::size_t rank = 0; rank < setting.acceptance_vector.size(); ++rank) {
    std::snprintf(line, sizeof line, "  %4zu %13.4f   %lld of %lld\n", rank,
                  setting.acceptance_vector[rank], static_cast<long long>(setting.accepted[rank]),
                  static_cast<long long>(setting.judged[rank]));
    text += line;
  }
  text += "  tree size     depth   tokens a pass expected of Sequoia's tree\n";
  for (const std::int32_t size : {4, 8, 16, 32, 64, 128}) {
    const GrowMap map = plan_sequoia(study::vector_to_plan_for(setting), {size, tree_depth});
    std::snprintf(line, sizeof line, "  %9d %9d   %.3f\n", map.shape.size(), map.shape.height(),
                  map.expected_length);
    text += line;
  }
  return text;
}

// nullopt: Ctrl-C.
std::optional<MeasuredPair> measured(const po::variables_map& values,
                                     const std::vector<GenerateOptions>& settings) {
  ChosenPrompts prompts(values);
  study::AcceptanceRequest request;
  request.new_tokens = count_in(values, "max-new-tokens", 1, 1 << 20);
  request.ranks = count_in(values, "ranks", 1, most_ranks);
  prompts.read();
  ProgressLine progress;
  EngineOptions engine_request = pair_options("plan", values, settings.front().speculation);
  engine_request.max_tree_size = std::max(engine_request.max_tree_size, 4 * request.ranks);
  Engine engine = load_pair(engine_request, progress);
  const InterruptWatch interrupts;
  request.stop = InterruptWatch::interrupted;
  request.prompts = prompts.tokens_of(engine, settings.front().seed, settings.front().add_bos,
                                      progress, interrupts.token());
  if (InterruptWatch::interrupted()) return std::nullopt;
  MeasuredPair pair = study::describe_pair(engine);
  pair.prompts = text_in(values, "prompts");
  for (const study::StudyPrompt& prompt : prompts.of_file()) {
    pair.prompt_prints.push_back(study::print_of(prompt));
  }
  pair.prompt_tokens = prompts.tokens();
  pair.seed = settings.front().seed;
  request.progress = [&](const std::string& what, double done) { progress.show(what, done); };
  if (!study::measure_settings(engine, std::move(request), settings, pair)) return std::nullopt;
  return pair;
}

}  // namespace

int plan(const std::vector<std::string>& arguments) {
  po::options_description measuring("Measuring");
  measuring.add_options()("out", po::value<std::string>()->value_name("FILE"),
                          "a new file of the vectors, for --acceptance-vector of other commands")(
      "temperatures", po::value<std::string>()->default_value("0")->value_name("LIST"),
      "like 0,0.6; a vector for each")(
      "acceptance", po::value<std::string>()->default_value("rejection")->value_name("LIST"),
      "rejection, or coupled, or rejection,coupled")(
      "draft-temperature", po::value<double>()->value_name("F"),
      "the target's if not given; 0.45 where that is 0");
  add_prompt_options(measuring, "; not those that a study is to run on", 16, 64);
  measuring.add_options()("max-new-tokens",
                          po::value<std::int32_t>()->default_value(64)->value_name("N"),
                          "tokens written behind each prompt")(
      "ranks", po::value<std::int32_t>()->default_value(study::usual_ranks)->value_name("N"),
      "children that are drawn of each node");
  add_filter_options(measuring);
  measuring.add_options()("seed", po::value<std::string>()->default_value("1")->value_name("N"),
                          "of all noise");
  po::options_description planning("Planning");
  planning.add_options()("acceptance-vector", po::value<std::string>()->value_name("FILE"),
                         "a file that --out wrote, instead of measuring; no model is loaded")(
      "grow-map", po::value<std::string>()->value_name("FILE"),
      "write the tree planned for the one setting that is measured, or for the one of the file "
      "that --temperatures and --acceptance name, if it holds several; for --policy sequoia --tree "
      "FILE")("tree-size",
              po::value<std::int32_t>()->default_value(usual_tree_size)->value_name("N"),
              "its draft tokens")(
      "tree-depth", po::value<std::int32_t>()->default_value(usual_tree_depth)->value_name("N"),
      "most layers of trees");
  po::options_description all;
  all.add(measuring).add(planning).add(model_options());
  po::variables_map values;
  if (!parse(
          arguments, all,
          "coppice plan: measure acceptance by sibling rank on a pair, plan Sequoia's trees\n\n"
          "  coppice plan --target MODEL --draft MODEL --temperatures 0,0.6 --out pair.json\n"
          "  coppice generate --target MODEL --draft MODEL --policy sequoia --temperature 0.6 \\\n"
          "      --tree-size 16 --acceptance-vector pair.json < prompt.txt\n"
          "  coppice plan --acceptance-vector pair.json --temperatures 0.6 --tree-size 16 \\\n"
          "      --grow-map map.json\n\n"
          "Continues texts with trees of many children of the root, and counts which of them is\n"
          "accepted. The file keeps the pair, the settings and the prompts: where it is\n"
          "used, others are refused.\n",
          values)) {
    return 0;
  }
  const std::string out = written_file_in(values, "out"),
                    map_file = written_file_in(values, "grow-map");
  const std::string known = text_in(values, "acceptance-vector");
  if (known.empty() && out.empty() && map_file.empty()) {
    throw_usage("plan writes its vectors or a grow map; give --out FILE, or --grow-map FILE");
  }
  if (!known.empty() && !out.empty()) {
    throw_usage("--out: nothing is measured with --acceptance-vector; leave one of the two out");
  }
  require_new("--out", out);
  require_new("--grow-map", map_file);
  const auto tree_size = count_in(values, "tree-size", 1, TreeShape::most_nodes);
  const auto tree_depth = count_in(values, "tree-depth", 1, TreeShape::most_nodes);
  const std::vector<GenerateOptions> settings = settings_of(values);
  if (!map_file.empty() && settings.size() > 1) {
    throw_usage(cat("--grow-map ", quote(map_file), ": one tree has one setting, but ",
                    settings.size(), " are named; give one of --temperatures and --acceptance"));
  }
  std::optional<MeasuredPair> pair;
  if (known.empty()) {
    pair = measured(values, settings);
  } else {
    pair = study::read_measured_pair(known);
  }
  if (!pair) {
    tell("interrupted; nothing was written");
    return interrupted_exit;
  }
  if (!out.empty()) {
    study::write_measured_pair(out, *pair);
    tell(cat("acceptance vectors written to ", quote(out)));
  }
  if (!map_file.empty()) {
    const MeasuredAcceptance& setting = setting_to_plan_for(values, known, *pair, settings.front());
    const GrowMap map = plan_sequoia(study::vector_to_plan_for(setting), {tree_size, tree_depth});
    study::write_planned_map(map_file, map, *pair, setting);
    tell(cat("tree of ", map.shape.size(), " nodes for ", study::words_of(setting), " written to ",
             quote(map_file)));
  }
  std::string text = cat("target ", pair->target.path, "\ndraft ", pair->draft.path, "\n",
                         pair->prompt_count, " prompts",
                         pair->prompts.empty() ? std::string(" written by the target")
                                               : cat(" of ", quote(pair->prompts)),
                         ", ", pair->new_tokens, " new tokens each\n");
  for (const MeasuredAcceptance& setting : pair->settings) text += described(setting, tree_depth);
  write_out(text);
  return 0;
}

}  // namespace coppice::cli
