// Measures the user's own pair and device and recommends how to run it.
#include "study/advise/advise.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/acceptance_vector.h"
#include "cli/chosen_prompts.h"
#include "cli/command.h"
#include "cli/option_values.h"
#include "cli/options.h"
#include "cli/terminal.h"

namespace coppice::cli {
namespace {

// Options of `coppice generate` that were given, in the words they were given in, and the weights
// of the draft that were chosen.
std::string given_options(const po::variables_map& values, const study::DraftFormat& chosen,
                          bool drafts) {
  const bool is_own = chosen.name.starts_with("self:");
  std::string words;
  for (const char* name : {"target",
                           "draft",
                           "target-weights",
                           "draft-weights",
                           "device",
                           "threads",
                           "cpu-dtype",
                           "kv-dtype",
                           "kv-tokens",
                           "gpu-memory-fraction",
                           "gpu-memory",
                           "gpu-layers",
                           "draft-gpu-layers",
                           "tensor-parallel",
                           "draft-tensor-parallel",
                           "devices",
                           "rank-address",
                           "rank-key",
                           "rank-timeout",
                           "host-memory",
                           "temperature",
                           "top-k",
                           "top-p",
                           "min-p",
                           "repetition-penalty",
                           "acceptance",
                           "draft-temperature"}) {
    const std::string_view option = name;
    if (is_own && (option == "target" || option == "draft")) continue;
    if (!drafts && option.starts_with("draft")) continue;
    // generate chooses the rule, unless it is named.
    const bool always = option == "acceptance";
    if (values.count(name) == 0 || (values[name].defaulted() && !always)) continue;
    const boost::any& value = values[name].value();
    std::string text;
    if (const auto* word = boost::any_cast<std::string>(&value)) text = shell_word(*word);
    if (const auto* number = boost::any_cast<double>(&value)) text = cat(*number);
    if (const auto* number = boost::any_cast<std::int32_t>(&value)) text = cat(*number);
    words += cat(" --", name, " ", text);
  }
  if (!drafts) {
    if (is_own && values.count("target") != 0) {
      words += cat(" --target ", shell_word(chosen.pair.target.string()));
    }
  } else if (is_own) {
    words += cat(" --target ", shell_word(chosen.pair.target.string()), " --draft ", chosen.name);
  } else if (values["draft-weights"].defaulted() &&
             chosen.pair.draft_weights != WeightRounding::keep &&
             !text_in(values, "draft").starts_with("self:")) {
    words += cat(" --draft-weights ", name_of(chosen.pair.draft_weights));
  }
  if (values.count("no-bos") != 0) words += " --no-bos";
  return words;
}

// The pair as it is given, or what is to be tried in its place where nothing says it.
std::vector<study::DraftFormat> formats_of(const po::variables_map& values,
                                           const EngineOptions& pair) {
  const bool said = !values["draft-weights"].defaulted() ||
                    text_in(values, "draft").starts_with("self:") ||
                    values.count("cost-table") != 0;  // which is of one pair
  if (said) return {{.name = "as given", .pair = pair}};
  return study::draft_formats(pair);
}

/// Tries each with an engine of its own, the first with the one that is there, and leaves none, so
/// that no two are in memory. False: stopped.
bool try_formats(std::vector<study::DraftFormat>& formats, std::optional<Engine>& engine,
                 const study::AdviceRequest& request, ProgressLine& progress) {
  bool goes_on = true;
  for (study::DraftFormat& one : formats) {
    const bool is_first = &one == &formats.front();
    try {
      if (!is_first) engine = load_pair(one.pair, progress);
      goes_on = study::try_format(*engine, request, one);
    } catch (const Error& error) {
      // What is wrong with the pair as given ends the command.
      if (is_first) throw;
      one.problem = error.what();
      one.plain = {};
    }
    engine.reset();
    if (!goes_on || request.stopped()) return false;
  }
  return true;
}

po::options_description kept_drafting_options() {
  po::options_description d("Speculation");
  d.add_options()(
      "acceptance",
      po::value<std::string>()->default_value("rejection")->value_name(any_of(all_acceptances)),
      "as for generate")("draft-temperature", po::value<double>()->value_name("F"),
                         "if not given, the target's, or 0.45 at temperature 0")(
      "acceptance-vector", po::value<std::string>()->value_name("FILE|P,P"),
      "what Sequoia's trees are planned for: a file of coppice plan, or numbers; measured on the "
      "prompts if not given");
  return d;
}

}  // namespace

int advise(const std::vector<std::string>& arguments) {
  po::options_description measuring("Measuring");
  add_prompt_options(measuring, "; texts like your own make the advice yours", 4, 64);
  measuring.add_options()(
      "max-new-tokens", po::value<std::int32_t>()->default_value(96)->value_name("N"),
      "tokens written behind each prompt, by each setting that is tried on it and in each round")(
      "rounds", po::value<std::int32_t>()->default_value(3)->value_name("N"),
      "of the check: the best candidates and plain decoding, alternately")(
      "no-check", "advise by short runs alone, without rounds that confirm it")(
      "format", po::value<std::string>()->default_value("text")->value_name("text|json"),
      "how results are printed");
  po::options_description all;
  all.add(measuring)
      .add(sampling_options({.seed = "1"}))
      .add(kept_drafting_options())
      .add(model_options());
  po::variables_map values;
  if (!parse(arguments, all,
             "coppice advise: which policy and tree size pay on this pair and this device\n\n"
             "Tries plain decoding, DySpec's trees of up to 64 nodes, chains of up to 16, "
             "Sequoia's trees\n"
             "for this pair, each of the depth that its measured costs favour, and looked-up "
             "children\n"
             "(--lookup text) beside the draft and without it, in short runs, and leaves out the "
             "slower\n"
             "half after each prompt. Then it runs the fastest of two policies, automatic sizes, "
             "with and\n"
             "without lookup, and plain decoding alternately, on other texts: what is faster in "
             "every\n"
             "round, and by 2% in the median one, is advised, and marked < in the list. Ctrl-C "
             "ends it.\n\n"
             "All this is done with the draft's weights that are fastest in short runs before: as\n"
             "stored, in q8_0, in q4_k, or the target's own in q4_k (--draft self:q4_k). Models\n"
             "that are stored quantised stay as they are; --draft-weights or --cost-table says\n"
             "that there is nothing to try.\n",
             values)) {
    return 0;
  }
  const bool json = wants_json(values);
  ChosenPrompts prompts(values);
  study::AdviceRequest request;
  named("acceptance", values["acceptance"].as<std::string>(), all_acceptances);
  request.sampling = sampling_request(values);
  if (values.count("seed") == 0) request.sampling.seed = 1;
  request.new_tokens = count_in(values, "max-new-tokens", study::fewest_new_tokens);
  request.check = values.count("no-check") == 0;
  request.rounds = count_in(values, "rounds", 1);
  request.sampling.validate();
  prompts.read();

  ProgressLine progress;
  EngineOptions engine_request = pair_options("advise", values, request.sampling.speculation);
  engine_request.max_tree_size = study::largest_advised_tree;
  engine_request.streamed_tree_size = usual_streamed_tree;
  GenerateOptions planned = request.sampling;
  planned.speculation = Sequoia{};
  read_acceptance_vector(values, engine_request, planned);
  request.acceptance_vector = std::get<Sequoia>(planned.speculation).acceptance;
  std::vector<study::DraftFormat> formats = formats_of(values, engine_request);
  std::optional<Engine> engine = load_pair(engine_request, progress);
  const InterruptWatch interrupts;
  if (prompts.written_by_target()) {
    study::require_room(*engine, prompts.tokens(), request.new_tokens);
  }
  request.prompts = prompts.tokens_of(*engine, request.sampling.seed, request.sampling.add_bos,
                                      progress, interrupts.token());
  request.progress = [&](const std::string& what, double fraction) {
    // It tells nothing of itself before its end.
    if (what == "measuring costs") return progress.wait_for(what);
    progress.show(what, fraction);
  };
  request.stop = InterruptWatch::interrupted;
  request.stop_measuring = interrupts.token();
  study::Advice advice;
  advice.stopped = InterruptWatch::interrupted();  // while the target wrote prompts
  std::size_t format = 0;
  if (formats.size() > 1 && !advice.stopped) {
    advice.stopped = !try_formats(formats, engine, request, progress);
    format = study::best_format(formats);
  }
  if (!advice.stopped) {
    if (!engine) engine = load_pair(formats[format].pair, progress);
    advice = study::advise(*engine, request);
    if (formats.size() > 1) advice.formats = formats;
    advice.format = format;
  }
  progress.clear();
  if (advice.stopped) {
    tell("interrupted before there was anything to advise");
    return interrupted_exit;
  }
  const std::string command =
      "coppice generate " + study::policy_options(advice) +
      given_options(values, formats[format], advice.advised.drafts && !advice.advised.plain());
  write_out(json ? study::to_json(advice, command) : study::to_text(advice, command));
  return 0;
}

}  // namespace coppice::cli
