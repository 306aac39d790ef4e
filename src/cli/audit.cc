// Tests whether speculation is lossless on the user's own pair, device and settings.
#include "study/audit/audit.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "cli/acceptance_vector.h"
#include "cli/chosen_prompts.h"
#include "cli/command.h"
#include "cli/option_values.h"
#include "cli/options.h"
#include "cli/terminal.h"
#include "engine/check_speculation.h"

namespace coppice::cli {
namespace {

/// Exit code of an audit that found nothing, but would not have seen enough.
constexpr int undecided_exit = 3;

/// What is tested where no policy was named.
struct Usual {
  Policy policy;
  std::int32_t tree_size;
};
constexpr Usual usual[] = {{Policy::dyspec, 16}, {Policy::chain, 4}, {Policy::sequoia, 16}};
constexpr UsualValues usual_values = {0.8,
                                      "1",
                                      "dyspec, chain and sequoia",
                                      "16, 4 and 16",
                                      "both",
                                      "rejection; or coupled: shared noise, as plain coupled "
                                      "sampling with this seed"};

// The settings that the options name, or the usual ones; both acceptances where none was named.
std::vector<study::AuditSetting> settings_of(const po::variables_map& values,
                                             const GenerateOptions& request) {
  std::vector<GenerateOptions> all;
  if (values["policy"].defaulted()) {
    PolicyOptions options = policy_options(values);
    const bool sized = options.tree_size > 0;
    for (const Usual& one : usual) {
      options.policy = one.policy;
      if (!sized) options.tree_size = one.tree_size;
      all.push_back(request);
      all.back().speculation = speculation_of(options);
      if (!takes(one.policy, PolicyOption::lookup)) all.back().lookup = Lookup::none;
    }
  } else {
    all.push_back(request);
  }
  const bool asked = !values["acceptance"].defaulted();
  if (asked) named("acceptance", values["acceptance"].as<std::string>(), all_acceptances);
  std::vector<study::AuditSetting> settings;
  for (GenerateOptions& options : all) {
    for (const Acceptance acceptance : all_acceptances) {
      if (asked && acceptance != request.acceptance) continue;
      // Rejection is no choice for what it would bias.
      if (!asked && needs_any_tree_exact(options.speculation) &&
          acceptance == Acceptance::rejection) {
        continue;
      }
      options.acceptance = acceptance;
      settings.push_back({study::name_setting(options), options});
    }
  }
  return settings;
}

}  // namespace

int audit(const std::vector<std::string>& arguments) {
  po::options_description tests("Tests");
  add_prompt_options(tests, "", 2, 16);
  tests.add_options()("samples",
                      po::value<std::string>()->default_value("auto")->value_name("N|auto"),
                      "short texts sampled of each setting; auto: as many as --smallest-bias and "
                      "the planted faults "
                      "need to be seen, at least 500 and what takes about a minute")(
      "smallest-bias", po::value<double>()->default_value(0.1, "0.1")->value_name("F"),
      "total variation of the first token's distribution that is to be seen; planted faults that "
      "bias less need not be")(
      "time-limit", po::value<double>()->default_value(600.0, "600")->value_name("SECONDS"),
      "with --samples auto: about how long the audit may take; what is not shown by then is not "
      "decided")("compared-tokens", po::value<std::int32_t>()->default_value(128)->value_name("N"),
                 "tokens of each prompt and setting compared with plain decoding")(
      "no-self-check", "plant no faults (the tests are then not tested)")(
      "format", po::value<std::string>()->default_value("text")->value_name("text|json"),
      "how results are printed");
  po::options_description all;
  all.add(tests).add(sampling_options(usual_values)).add(drafting_options(usual_values));
  all.add(model_options());
  po::variables_map values;
  if (!parse(
          arguments, all,
          "coppice audit: test whether speculation is lossless here\n\n"
          "Draws many short texts and compares their law with the target's own, compares texts\n"
          "at temperature 0 and under coupled acceptance with plain decoding token for token,\n"
          "and plants faults to find how many texts the tests need to see them. A --policy that\n"
          "is named has the tree size that generate would give it. Ctrl-C ends it without a\n"
          "verdict. Exit code 0: lossless as far as the tests see, which the verdict says in\n"
          "numbers; 1: a bias was found, or the audit failed; 2: wrong usage; 3: not decided, for\n"
          "planted faults were not seen, time ran out, or something could not be tested.\n",
          values)) {
    return 0;
  }
  const bool json = wants_json(values);
  study::AuditRequest audit;
  audit.samples =
      count_or_auto("samples", values["samples"].as<std::string>(), study::most_samples);
  audit.smallest_bias = values["smallest-bias"].as<double>();
  if (!(audit.smallest_bias > 0.0 && audit.smallest_bias < 1.0)) {
    throw_usage(cat("--smallest-bias ", audit.smallest_bias, ": use a number between 0 and 1"));
  }
  if (values.count("no-self-check") != 0 && !values["smallest-bias"].defaulted()) {
    throw_usage("--smallest-bias does nothing with --no-self-check; leave one of them out");
  }
  audit.time_limit = values["time-limit"].as<double>();
  if (!(audit.time_limit > 0.0) || !std::isfinite(audit.time_limit)) {
    throw_usage(cat("--time-limit ", audit.time_limit, ": use seconds above 0"));
  }
  if (audit.samples > 0 && !values["time-limit"].defaulted()) {
    throw_usage("--time-limit does nothing with a number of --samples; leave one of them out");
  }
  audit.compared_tokens = count_in(values, "compared-tokens", 1);
  ChosenPrompts prompts(values);
  audit.self_check = values.count("no-self-check") == 0;
  GenerateOptions request = generate_options(values);
  if (values.count("seed") == 0) request.seed = 1;
  audit.seed = request.seed;
  audit.settings = settings_of(values, request);
  study::check(audit.settings);
  const auto& largest = *std::max_element(
      audit.settings.begin(), audit.settings.end(),
      [](const study::AuditSetting& a, const study::AuditSetting& b) {
        return asked_size(a.options.speculation) < asked_size(b.options.speculation);
      });
  prompts.read();

  ProgressLine progress;
  EngineOptions engine_request = pair_options("audit", values, largest.options.speculation);
  for (study::AuditSetting& setting : audit.settings) {
    read_acceptance_vector(values, engine_request, setting.options);
  }
  tell_usual_acceptance(values, audit.settings.back().options);  // sequoia is the last, if at all
  Engine engine = load_pair(engine_request, progress);
  const InterruptWatch interrupts;
  audit.prompts =
      prompts.tokens_of(engine, audit.seed, request.add_bos, progress, interrupts.token());
  audit.progress = [&](const std::string& what, double fraction) { progress.show(what, fraction); };
  audit.stop = InterruptWatch::interrupted;
  const study::AuditReport report = study::run_audit(engine, audit);
  progress.clear();
  if (report.stopped) {
    tell("interrupted: no verdict, and nothing was kept; --samples N makes a shorter audit");
    return interrupted_exit;
  }
  write_out(json ? study::to_json(report) : study::to_text(report, engine));
  switch (report.verdict()) {
    case study::AuditVerdict::lossless:
      return 0;
    case study::AuditVerdict::biased:
      return 1;
    case study::AuditVerdict::undecided:
      break;
  }
  return undecided_exit;
}

}  // namespace coppice::cli
