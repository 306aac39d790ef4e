// Measures policies on prompts.
#include "study/study.h"

#include "base/error.h"
#include "cli/command.h"
#include "cli/constraint_options.h"
#include "cli/option_values.h"
#include "cli/study_folders.h"
#include "cli/study_options.h"
#include "cli/study_output.h"
#include "cli/terminal.h"

namespace coppice::cli {
int study(const std::vector<std::string>& arguments) {
  if (!arguments.empty() && (arguments[0] == "compare" || arguments[0] == "merge")) {
    const std::vector<std::string> rest(arguments.begin() + 1, arguments.end());
    return arguments[0] == "compare" ? study_compare(rest) : study_merge(rest);
  }
  po::options_description all;
  all.add(study_options()).add(study_policy_options()).add(constraint_options());
  all.add(model_options());
  po::variables_map values;
  if (!parse(arguments, all,
             "coppice study: measure policies on prompts, against plain decoding\n\n"
             "  coppice study --prompts bench/prompts/prompts.jsonl --out study --limit 24 \\\n"
             "      --policies dyspec,chain,sequoia,specinfer --tree-sizes 16,64 --temperatures "
             "0,0.6\n\n"
             "Prints tables and which setting is fastest, and writes DIR/summary.csv, depths.csv,\n"
             "report.html, tables and figures, out of DIR/results.jsonl. Ended early, it goes on "
             "when\n"
             "it is started again.\n\n"
             "  coppice study compare DIR DIR      settings that both have, on prompts that both "
             "have\n"
             "  coppice study merge NEW DIR DIR... one study of several\n",
             values)) {
    return 0;
  }
  const TableFormat format = table_format(values["format"].as<std::string>());
  StudyCommand command = study_command(values);
  command.request.command = "coppice study";
  for (const std::string& word : arguments) command.request.command += " " + shell_word(word);
  for (const std::string& note : command.notes) tell(note);
  ProgressLine progress(progress_seconds(values));
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
  write_out(tables_text(outcome, format));
  write_out(cat("\n", printable((command.out / "report.html").string()), "\n"));
  return 0;
}

}  // namespace coppice::cli
