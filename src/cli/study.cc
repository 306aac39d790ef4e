// Measures policies on prompts.
#include "study/study.h"


#include "cli/command.h"
#include "cli/study_options.h"
#include "cli/terminal.h"

namespace coppice::cli {
namespace {

std::string table_text(const study::StudyRequest& request, const study::StudyOutcome& outcome) {
  std::string text = to_text(study::summary_table(outcome.summary)) + "\nPer step:\n" +
                     to_text(study::step_table(outcome.summary));
  text +=
      cat("\nAccepted length: tokens judged good per target pass, the bonus token included. "
          "Acceptance\n"
          "rate: of the draft tokens that the judge came to. Speed-up: over plain decoding in the "
          "same\n"
          "run, prefill left out. Intervals: 95%, by bootstrap over prompts.\n");
  if (!outcome.summary.oracle.empty()) {
    text +=
        "Oracle: the best trees in hindsight by the target's own probabilities, on text that "
        "knows\n"
        "nothing of them (rejection and coupled noise may exceed it with a very good draft).\n";
  }
  text += cat(outcome.device, " ", outcome.dtype, ", ", request.prompts.size(),
              request.prompts.size() == 1 ? " prompt" : " prompts", ", at most ",
              request.shared.max_new_tokens, " new tokens.\n");
  for (const std::string& note : outcome.file.notes) text += note + "\n";
  if (outcome.cut_short > 0) {
    text +=
        cat(outcome.cut_short, " of ", outcome.texts,
            " texts ended early because the context or the KV memory was full; cut prompts with "
            "--prompt-tokens, or raise --kv-tokens.\n");
  }
  if (request.jobs > 1) {
    text += cat(request.jobs,
                " jobs at once: times compare within this table, not with runs of one job.\n");
  }
  return text;
}

}  // namespace

int study(const std::vector<std::string>& arguments) {
  po::options_description all;
  all.add(study_options()).add(study_policy_options()).add(model_options());
  po::variables_map values;
  if (!parse(arguments, all,
             "coppice study: measure policies on prompts, against plain decoding\n\n"
             "  coppice study --prompts bench/prompts/prompts.jsonl --out study --limit 24 \\\n"
             "      --policies dyspec,chain,sequoia,specinfer --tree-sizes 16,64 --temperatures "
             "0,0.6\n\n"
             "Prints a table and writes DIR/summary.csv, report.html and figures/*.svg, out of\n"
             "DIR/results.jsonl. Ended early, it goes on when it is started again.\n",
             values)) {
    return 0;
  }
  const StudyCommand command = study_command(values);
  for (const std::string& note : command.notes) tell(note);
  ProgressLine progress(true);
  const InterruptWatch interrupts;
  study::StudyHooks hooks;
  hooks.progress = [&](const std::string& what, double fraction) { progress.show(what, fraction); };
  hooks.stop = [] { return InterruptWatch::interrupted(); };
  const study::StudyOutcome outcome = study::conduct(command.request, command.out, hooks);
  progress.clear();
  if (!outcome.finished) {
    tell("stopped; start it again with the same options to go on");
    return interrupted_exit;
  }
  write_out(table_text(command.request, outcome));
  write_out(cat("\n", printable((command.out / "report.html").string()), "\n"));
  return 0;
}

}  // namespace coppice::cli
