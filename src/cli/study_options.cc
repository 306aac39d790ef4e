#include "cli/study_options.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/error.h"
#include "cli/option_values.h"
#include "engine/check_speculation.h"
#include "study/grid/cell.h"
#include "study/grid/settings.h"
#include "study/prompts/prompts.h"

namespace coppice::cli {
namespace {

study::GridLists grid_lists(const po::variables_map& values) {
  study::GridLists lists;
  const auto list = [&](const char* option, auto parse) {
    return choices_in(option, values[option].as<std::string>(), parse);
  };
  const std::vector<std::string> policies = study::study_policy_names();
  lists.policies = list(
      "policies", [&](const std::string& text) { return choice_in("--policies", text, policies); });
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
      throw_usage(
          cat("--draft-temperature ", lists.draft_temperature, ": use a number from 0.001 to 100"));
    }
  }
  read_tree_options(values, lists.options);
  lists.grow_map = text_in(values, "grow-map");
  return lists;
}

GenerateOptions shared_options(const po::variables_map& values) {
  GenerateOptions shared;
  shared.max_new_tokens = count_in(values, "max-new-tokens", 1);
  shared.ignore_eos = values.count("ignore-eos") != 0;
  read_filters(values, shared.sampling);
  return shared;
}

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_' || c == '.';
}

study::ModelPair pair_in(const std::string& text) {
  const auto equals = text.find('='), comma = text.find(',');
  study::ModelPair pair;
  if (equals == text.npos || comma == text.npos || comma < equals || comma + 1 == text.size() ||
      equals + 1 == comma || text.find(',', comma + 1) != text.npos) {
    throw_usage(cat("--pair ", quote(text), ": use NAME=TARGET,DRAFT, with two model folders"));
  }
  pair.name = text.substr(0, equals);
  pair.target = text.substr(equals + 1, comma - equals - 1);
  pair.draft = text.substr(comma + 1);
  if (pair.name.empty() || !std::all_of(pair.name.begin(), pair.name.end(), is_name_character)) {
    throw_usage(cat("--pair ", quote(text),
                    ": its name becomes part of files' names; use letters, ",
                    "digits, '-', '_' and '.'"));
  }
  for (const std::filesystem::path& folder : {pair.target, pair.draft}) {
    std::error_code ignored;
    if (std::filesystem::is_directory(folder, ignored)) continue;
    throw_usage(cat("--pair ", quote(text), ": ", quote(folder.string()),
                    " is no folder; name two model folders"));
  }
  return pair;
}

std::vector<study::ModelPair> pairs_in(const po::variables_map& values) {
  std::vector<study::ModelPair> pairs;
  if (values.count("pair") == 0) return pairs;
  if (values.count("target") != 0 || values.count("draft") != 0) {
    throw_usage(
        "--pair names models that --target and --draft name too; give the one or the other");
  }
  for (const std::string& text : values["pair"].as<std::vector<std::string>>()) {
    pairs.push_back(pair_in(text));
    const auto same = [&](const study::ModelPair& one) { return one.name == pairs.back().name; };
    if (std::count_if(pairs.begin(), pairs.end(), same) > 1) {
      throw_usage(cat("--pair ", quote(pairs.back().name), " is given twice; use another name"));
    }
  }
  return pairs;
}

/// The cells of a grid for every pair.
std::vector<study::Cell> of_pairs(const std::vector<study::Cell>& cells,
                                  const std::vector<study::ModelPair>& pairs) {
  if (pairs.empty()) return cells;
  std::vector<study::Cell> all;
  for (const study::ModelPair& pair : pairs) {
    for (study::Cell cell : cells) {
      cell.pair = pair.name;
      all.push_back(std::move(cell));
    }
  }
  return all;
}

}  // namespace

po::options_description study_options() {
  po::options_description d("Prompts, results and work");
  d.add_options()(
      "prompts", po::value<std::string>()->value_name("FILE"),
      "one a line: JSON objects with prompt, text, question, turns or tokens (ids), and "
      "kind or category to group them; or plain text")(
      "out", po::value<std::string>()->value_name("DIR"),
      "folder of the results; given again the study goes on there, and with more prompts, "
      "settings, "
      "rounds or pairs what is there is used")(
      "limit", po::value<std::int32_t>()->default_value(0)->value_name("N"),
      "only N prompts, spread evenly over the file; 0: all")(
      "prompt-tokens", po::value<std::int32_t>()->default_value(0)->value_name("N"),
      "only the first N tokens of longer prompts or turns; 0: all")(
      "rounds", po::value<std::int32_t>()->default_value(1)->value_name("N"),
      "times that all is run, settings in a new random order for each prompt; from 3 on times have "
      "intervals of their own")(
      "pair", po::value<std::vector<std::string>>()->composing()->value_name("NAME=TARGET,DRAFT"),
      "models in place of --target and --draft, by a name; may be given several times")(
      "max-new-tokens", po::value<std::int32_t>()->default_value(128)->value_name("N"),
      "most new tokens of each prompt, turn and setting")("ignore-eos", "go on after an end token")(
      "oracle-positions", po::value<std::int32_t>()->default_value(8)->value_name("N"),
      "above temperature 0 and for sizes up to 64: steps of each prompt at which the best tree in "
      "hindsight is sought, each for as many target passes as the tree has nodes; 0: none")(
      "trace", po::value<std::string>()->value_name("FILE"),
      "also write every node of every tree, for numpy (src/study/README.md says how it is "
      "read)")(
      "jobs", po::value<std::int32_t>()->default_value(1)->value_name("N"),
      "prompts at the same time on the CPU, each with its own models and, if --threads is not "
      "given, one thread; speeds then compare within the study only")(
      "progress", po::value<double>()->default_value(30.0, "30")->value_name("SECONDS"),
      "between lines of progress where standard error is no terminal; 0: none")(
      "format",
      po::value<std::string>()->default_value("text")->value_name("text|markdown|latex|csv"),
      "of the tables printed; DIR/tables holds them in all");
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
  policies += "; plain ones grow by draft probability alone, and dyspec-plain needs tree sizes";
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
      "not given, it is measured on 16 prompts that --limit leaves out or, if these are fewer, on "
      "texts that the target writes, and kept in DIR")(
      "tree-depth", po::value<std::int32_t>()->default_value(0)->value_name("N"),
      "most layers; 0: sequoia 10, expand-rerank 6")(
      "beam-width", po::value<std::int32_t>()->default_value(0)->value_name("N"),
      "expand-rerank: nodes expanded in a layer; 0: 10")(
      "threshold", po::value<double>()->default_value(0.0, "0")->value_name("F"),
      "dyspec-threshold, plain or not: least estimated acceptance; 0: from measured costs");
  add_filter_options(d);
  return d;
}

StudyCommand study_command(const po::variables_map& values) {
  constexpr std::int32_t largest_oracle = 64;
  constexpr std::int32_t most_jobs = 256, most_rounds = 1000;
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
  request.pairs = pairs_in(values);
  request.cells = of_pairs(grid.cells, request.pairs);
  command.notes = std::move(grid.notes);
  request.prompt_tokens = count_in(values, "prompt-tokens", 0);
  request.oracle_positions = count_in(values, "oracle-positions", 0);
  request.rounds = count_in(values, "rounds", 1, most_rounds);
  request.jobs = count_in(values, "jobs", 1, most_jobs);
  const std::int32_t limit = count_in(values, "limit", 0);
  const auto all_prompts = study::read_prompts(request.prompts_file);
  request.prompts = study::spread(all_prompts, limit);
  request.spare = study::left_out(all_prompts, request.prompts);

  // Of the largest tree that any cell grows.
  std::int32_t largest = 0;
  bool speculates = false;
  for (const study::Cell& cell : request.cells) {
    speculates = speculates || !cell.plain();
    largest = std::max({largest, cell.given_size, cell.tree_size});
    const std::int32_t size = cell.tree_size > 0 ? cell.tree_size : cell.given_size;
    const bool known = std::find(request.oracle_sizes.begin(), request.oracle_sizes.end(), size) !=
                       request.oracle_sizes.end();
    if (size > 0 && size <= largest_oracle && !known) request.oracle_sizes.push_back(size);
  }
  std::sort(request.oracle_sizes.begin(), request.oracle_sizes.end());
  po::variables_map models = values;
  if (!request.pairs.empty()) {
    models.insert({"target", po::variable_value(request.pairs[0].target.string(), false)});
    models.insert({"draft", po::variable_value(request.pairs[0].draft.string(), false)});
  }
  request.engine =
      engine_options(models, speculates ? Speculation(Chain{largest}) : Speculation(Plain{}));
  if (speculates && request.engine.draft.empty()) {
    throw_usage("study needs a draft model; give --draft DIR, or --policies none");
  }
  return command;
}

}  // namespace coppice::cli
