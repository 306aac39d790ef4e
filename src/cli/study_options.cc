#include "cli/study_options.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/error.h"
#include "cli/constraint_options.h"
#include "cli/option_values.h"
#include "engine/check_speculation.h"
#include "study/grid/grid.h"
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

}  // namespace

po::options_description study_options() {
  po::options_description d("Prompts, results and work");
  d.add_options()(
      "prompts", po::value<std::string>()->value_name("FILE"),
      "one a line: JSON objects with prompt, text, question, turns or tokens (ids), and "
      "kind or category to group them; or plain text")(
      "out", po::value<std::string>()->value_name("DIR"),
      "folder of the results; given again the study goes on there, and with more prompts, "
      "settings or rounds what is there is used")(
      "limit", po::value<std::int32_t>()->default_value(0)->value_name("N"),
      "only N prompts, spread evenly over the file; 0: all")(
      "prompt-tokens", po::value<std::int32_t>()->default_value(0)->value_name("N"),
      "only the first N tokens of longer prompts or turns; 0: all")(
      "rounds", po::value<std::int32_t>()->default_value(1)->value_name("N"),
      "times that all is run, settings in a new random order for each prompt; from 3 on times have "
      "intervals of their own")(
      "max-new-tokens", po::value<std::int32_t>()->default_value(128)->value_name("N"),
      "most new tokens of each prompt, turn and setting")("ignore-eos", "go on after an end token")(
      "trace", po::value<std::string>()->value_name("FILE"),
      "also write every node of every tree, for numpy (src/study/README.md says how it is read); "
      "begins with its study")(
      "progress", po::value<double>()->default_value(30.0, "30")->value_name("SECONDS"),
      "between lines of progress where standard error is no terminal; 0: none")(
      "format", po::value<std::string>()->default_value("text")->value_name("text|latex|csv"),
      "of the tables printed; DIR/tables holds them in all");
  return d;
}

po::options_description study_policy_options() {
  po::options_description d("Settings: every combination of the lists, and plain decoding");
  const auto list = [](const char* usual) {
    return po::value<std::string>()->default_value(usual)->value_name("LIST");
  };
  // Words of more than 20 letters would be broken by whoever wraps the lines.
  const std::string policies =
      cat("of ", names_of(all_policies()),
          "; the first two also with -plain behind their names: these grow by draft probability "
          "alone, and dyspec-plain needs tree sizes; these and chain also with +lookup (--lookup "
          "text beside the draft); lookup: without the draft");
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
  constexpr std::int32_t most_rounds = 1000;
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
  request.constraint = ConstraintReader().read(values);
  if (request.constraint != nullptr && request.shared.ignore_eos) {
    throw_usage("--ignore-eos: a text under a constraint ends by an end token; leave one out");
  }
  study::Grid grid = study::make_grid(grid_lists(values), request.shared);
  request.cells = std::move(grid.cells);
  request.left_out = grid.notes;
  command.notes = std::move(grid.notes);
  request.prompt_tokens = count_in(values, "prompt-tokens", 0);
  request.rounds = count_in(values, "rounds", 1, most_rounds);
  const std::int32_t limit = count_in(values, "limit", 0);
  const auto all_prompts = study::read_prompts(request.prompts_file);
  request.prompts = study::spread(all_prompts, limit);
  request.spare = study::left_out(all_prompts, request.prompts);

  // The size of the largest tree that any cell grows.
  std::int32_t largest = 0;
  bool drafts = false;
  for (const study::Cell& cell : request.cells) {
    drafts = drafts || (!cell.plain() && cell.drafts);
    largest = std::max({largest, cell.given_size, cell.tree_size});
  }
  request.engine =
      engine_options(values, drafts ? Speculation(Chain{largest}) : Speculation(Plain{}));
  request.engine.max_tree_size = tree_room(Chain{largest});
  if (drafts && request.engine.draft.empty()) {
    throw_usage("study needs a draft model; give --draft MODEL, or --policies none,lookup");
  }
  return command;
}

}  // namespace coppice::cli
