// Records the distributions around texts, for `coppice replay`.
#include <algorithm>
#include <cstdint>

#include "cli/chosen_prompts.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/terminal.h"
#include "study/prompts/prompts.h"
#include "study/replay/recorder.h"

namespace coppice::cli {
namespace {

std::string required(const po::variables_map& values, const char* name, const char* what) {
  const std::string text = text_in(values, name);
  if (text.empty()) throw_usage(cat("--", name, " is missing; name ", what));
  return text;
}

}  // namespace

int record(const std::vector<std::string>& arguments) {
  po::options_description what("Recording");
  what.add_options()("prompts", po::value<std::string>()->value_name("FILE"),
                     "prompts, one a line: JSON objects or plain text")(
      "out", po::value<std::string>()->value_name("FILE"),
      "the recording; given again with the same options, it goes on behind its last text")(
      "limit", po::value<std::int32_t>()->default_value(0)->value_name("N"),
      "only N prompts, spread evenly over the file; 0: all")(
      "max-new-tokens", po::value<std::int32_t>()->default_value(64)->value_name("N"),
      "new tokens of each text; end tokens are ignored")(
      "nodes", po::value<std::int32_t>()->default_value(256)->value_name("N"),
      "nodes recorded at each position, the root included, at most 1025: four times the largest "
      "tree to be replayed serves well")(
      "entries", po::value<std::int32_t>()->default_value(16)->value_name("K"),
      "children recorded of each node, which no replayed tree can have more of, and tokens of its "
      "distributions")("draft-temperature", po::value<double>()->value_name("F"),
                       "the target's if not given; 0.45 where that is 0");
  po::options_description all;
  all.add(what).add(sampling_options({.seed = "1"})).add(cpu_model_options());
  po::variables_map values;
  if (!parse(arguments, all,
             "coppice record: let the target write texts, and keep what draft and target would\n"
             "have said around every position, for coppice replay. Runs on the CPU.\n\n"
             "  coppice record --prompts prompts.jsonl --out stories.rec --temperature 0.8\n",
             values)) {
    return 0;
  }
  study::RecordOptions options;
  options.generate = sampling_request(values);
  if (values.count("seed") == 0) options.generate.seed = 1;
  options.generate.max_new_tokens = values["max-new-tokens"].as<std::int32_t>();
  options.nodes = count_in(values, "nodes", 1, 1025);
  options.top_k = values["entries"].as<std::int32_t>();
  const std::string out = required(values, "out", "the file to write");
  const std::string file = required(values, "prompts", "a file of prompts");
  const std::int32_t limit = count_in(values, "limit", 0);
  const auto prompts = study::spread(study::read_prompts(file), limit);
  options.generate.speculation = Chain{std::max(1, options.nodes - 1)};  // as large a tree
  options.generate.validate();

  ProgressLine progress;
  EngineOptions engine_request = pair_options("record", values, options.generate.speculation);
  Engine engine = load_pair(engine_request, progress);
  study::Recorder recorder(engine, options);
  // Every prompt is known to fit before the first text is written, which may take long.
  study::PromptUse use;
  use.new_tokens = options.generate.max_new_tokens;
  use.remedy = "shorten it, lower --max-new-tokens";
  const auto texts = study::to_tokens(engine, file, prompts, use);
  study::RecordingWriter writer(out, recorder.header(texts));
  const InterruptWatch interrupts;
  while (writer.texts() < texts.size()) {
    const std::size_t next = writer.texts();
    const auto text =
        recorder.record(static_cast<std::int32_t>(next), texts[next], [&](double done) {
          progress.show("recording",
                        (static_cast<double>(next) + done) / static_cast<double>(texts.size()));
          return !InterruptWatch::interrupted();
        });
    if (InterruptWatch::interrupted()) break;
    writer.append(text);
  }
  progress.clear();
  const bool whole = writer.texts() == texts.size();
  tell(cat(writer.texts(), " of ", texts.size(), " texts recorded in ", quote(out), ", seed ",
           options.generate.seed, whole ? "" : "; start it again with the same options to go on"));
  return whole ? 0 : interrupted_exit;
}

}  // namespace coppice::cli
