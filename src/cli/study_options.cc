#include "cli/study_options.h"

#include <algorithm>
#include <cstdint>

#include "base/error.h"
#include "cli/option_values.h"
#include "study/grid.h"
#include "study/policy_name.h"
#include "study/prompts.h"
#include "tree_plan.h"

namespace coppice::cli {
namespace {

std::int32_t count_in(const po::variables_map& values, const char* option, std::int32_t least) {
  const auto count = values[option].as<std::int32_t>();
  if (count < least) throw_usage(cat("--", option, " ", count, ": use ", least, " or more"));
  return count;
}

std::string text_in(const po::variables_map& values, const char* option) {
  return values.count(option) != 0 ? values[option].as<std::string>() : std::string();
}

study::GridLists grid_lists(const po::variables_map& values) {
  study::GridLists lists;
  const auto list = [&](const char* option, auto parse) {
    return choices_in(option, values[option].as<std::string>(), parse);
  };
  lists.policies = list("policies", [](const std::string& text) { return text; });
  lists.tree_sizes =
      list("tree-sizes", [](const std::string& text) { return tree_size_in("tree-sizes", text); });
  lists.temperatures = list("temperatures", [](const std::string& text) {
    const auto temperature = number_in<double>("temperatures", text);
    return temperature == 0.0 ? 0.0 : temperature;  // -0 is 0
  });
  lists.acceptances = list("acceptance", [](const std::string& text) {
    return named("acceptance", text, all_acceptances);
  });
  lists.seeds = list(
      "seeds", [](const std::string& text) { return number_in<std::uint64_t>("seeds", text); });
  if (values.count("draft-temperature") != 0) {
    lists.draft_temperature = values["draft-temperature"].as<double>();
    if (!(lists.draft_temperature > 0.0)) {
      throw_usage(cat("--draft-temperature ", lists.draft_temperature, ": use a number above 0"));
    }
  }
  GenerateOptions trees;
  read_tree_options(values, trees);
  lists.tree_depth = trees.tree_depth;
  lists.beam_width = trees.beam_width;
  lists.threshold = trees.threshold;
  lists.widths = trees.widths;
  lists.tree = trees.tree;
  lists.grow_map = text_in(values, "grow-map");
  return lists;
}

study::SharedOptions shared_options(const po::variables_map& values) {
  study::SharedOptions shared;
  shared.max_new_tokens = count_in(values, "max-new-tokens", 1);
  shared.ignore_eos = values.count("ignore-eos") != 0;
  shared.repetition_penalty = values["repetition-penalty"].as<double>();
  shared.top_k = values["top-k"].as<std::int32_t>();
  shared.top_p = values["top-p"].as<double>();
  shared.min_p = values["min-p"].as<double>();
  return shared;
}

}  // namespace

po::options_description study_options() {
  po::options_description d("Prompts, results and work");
  d.add_options()("prompts", po::value<std::string>()->value_name("FILE"),
                  "one a line: JSON objects with prompt, text, question, turns (the first) or "
                  "tokens (ids), and kind or category to group them; or plain text")(
      "out", po::value<std::string>()->value_name("DIR"),
      "folder of the results; given again with the same settings, the study goes on there")(
      "limit", po::value<std::int32_t>()->default_value(0)->value_name("N"),
      "only N prompts, spread evenly over the file; 0: all")(
      "prompt-tokens", po::value<std::int32_t>()->default_value(0)->value_name("N"),
      "only the first N tokens of longer prompts; 0: all")(
      "max-new-tokens", po::value<std::int32_t>()->default_value(128)->value_name("N"),
      "most new tokens of each prompt and setting")("ignore-eos", "go on after an end token")(
      "oracle-positions", po::value<std::int32_t>()->default_value(8)->value_name("N"),
      "above temperature 0 and for sizes up to 64: steps of each prompt at which the best tree in "
      "hindsight is sought, each for as many target passes as the tree has nodes; 0: none")(
      "trace", po::value<std::string>()->value_name("FILE"),
      "also write every node of every tree, for numpy (src/study/trace.h says how it is read)")(
      "jobs", po::value<std::int32_t>()->default_value(1)->value_name("N"),
      "prompts at the same time on the CPU, each with its own models and, if --threads is not "
      "given, one thread; speeds then compare within the study only");
  return d;
}

po::options_description study_policy_options() {
  po::options_description d("Settings: every combination of the lists, and plain decoding");
  const auto list = [](const char* usual) {
    return po::value<std::string>()->default_value(usual)->value_name("LIST");
  };
  std::string policies;
  for (const std::string& name : study::study_policy_names()) {
    policies += (policies.empty() ? "of " : ", ") + name;
  }
  policies +=
      "; calibrated ones grow by acceptance as learned in each text, and dyspec-calibrated needs "
      "tree sizes";
  d.add_options()("policies", list("dyspec"), policies.c_str())(
      "tree-sizes", list("auto"), "draft tokens per target pass, or auto, like 16,64,auto")(
      "temperatures", list("0"), "like 0,0.6")("acceptance", list("rejection"),
                                               "rejection, or coupled, or rejection,coupled")(
      "seeds", list("0"), "each prompt runs with each; a table's row holds all")(
      "draft-temperature", po::value<double>()->value_name("F"),
      "the target's if not given; 0.45 where that is 0")(
      "widths", po::value<std::string>()->value_name("3,2,1"),
      "specinfer: children of each node, by layer, instead of tree sizes")(
      "tree", po::value<std::string>()->value_name("FILE"),
      "static: its tree, JSON like {\"paths\": [[0], [1], [0, 0]]}")(
      "grow-map", po::value<std::string>()->value_name("FILE"),
      "sequoia: its tree, instead of the best for tree sizes and depth")(
      "acceptance-vector", po::value<std::string>()->value_name("FILE"),
      "sequoia: what its trees are planned for, as coppice plan measured it on other prompts; if "
      "not given, it is measured on texts that the target writes, and kept in DIR")(
      "tree-depth", po::value<std::int32_t>()->default_value(0)->value_name("N"),
      "most layers; 0: sequoia 10, expand-rerank 6")(
      "beam-width", po::value<std::int32_t>()->default_value(0)->value_name("N"),
      "expand-rerank: nodes expanded in a layer; 0: 10")(
      "threshold", po::value<double>()->default_value(0.0, "0")->value_name("F"),
      "dyspec-threshold, calibrated or not: least estimated acceptance; 0: from measured costs")(
      "repetition-penalty", po::value<double>()->default_value(1.0, "1")->value_name("F"),
      "as for generate, and so are the next three")(
      "top-k", po::value<std::int32_t>()->default_value(0)->value_name("N"), "0: all tokens")(
      "top-p", po::value<double>()->default_value(1.0, "1")->value_name("F"), "1: all tokens")(
      "min-p", po::value<double>()->default_value(0.0, "0")->value_name("F"), "0: all tokens");
  return d;
}

StudyCommand study_command(const po::variables_map& values) {
  constexpr std::int32_t largest_oracle = 64;
  constexpr std::int32_t most_jobs = 256;
  StudyCommand command;
  study::StudyRequest& request = command.request;
  command.out = text_in(values, "out");
  if (command.out.empty()) throw_usage("study needs a folder for its results; give --out DIR");
  request.prompts_file = text_in(values, "prompts");
  if (request.prompts_file.empty()) {
    throw_usage("study needs prompts; give --prompts FILE, such as bench/prompts/prompts.jsonl");
  }
  request.trace = text_in(values, "trace");
  request.acceptance_file = text_in(values, "acceptance-vector");
  request.shared = shared_options(values);
  study::Grid grid = study::make_grid(grid_lists(values), request.shared);
  request.cells = std::move(grid.cells);
  command.notes = std::move(grid.notes);
  request.prompt_tokens = count_in(values, "prompt-tokens", 0);
  request.oracle_positions = count_in(values, "oracle-positions", 0);
  request.jobs = count_in(values, "jobs", 1);
  if (request.jobs > most_jobs) throw_usage(cat("--jobs ", request.jobs, ": use 1 to ", most_jobs));
  const std::int32_t limit = count_in(values, "limit", 0);
  request.prompts = study::spread(study::read_prompts(request.prompts_file), limit);

  // Of the largest tree that any cell grows.
  std::int32_t largest = 0;
  bool speculates = false;
  for (const study::Cell& cell : request.cells) {
    speculates = speculates || !cell.plain();
    const std::int32_t planned = plan_trees(cell.request(request.shared), largest_tree_size).size;
    largest = std::max({largest, planned, cell.tree_size});
    // Of trees that are given the oracle's has their size.
    const bool given = !cell.widths.empty() || !cell.tree.empty();
    const std::int32_t size = given ? planned : cell.tree_size;
    const bool known = std::find(request.oracle_sizes.begin(), request.oracle_sizes.end(), size) !=
                       request.oracle_sizes.end();
    if (size > 0 && size <= largest_oracle && !known) request.oracle_sizes.push_back(size);
  }
  std::sort(request.oracle_sizes.begin(), request.oracle_sizes.end());
  GenerateOptions any;
  any.tree_size = largest;
  if (!speculates) any.policy = Policy::none;
  request.engine = engine_options(values, any);
  if (speculates && request.engine.draft.empty()) {
    throw_usage("study needs a draft model; give --draft DIR, or --policies none");
  }
  return command;
}

}  // namespace coppice::cli
