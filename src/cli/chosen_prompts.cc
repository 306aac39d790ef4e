#include "cli/chosen_prompts.h"

#include "base/error.h"
#include "study/prompts/prompts.h"

namespace coppice::cli {

void add_prompt_options(po::options_description& options, const char* more, std::int32_t limit,
                        std::int32_t tokens) {
  options.add_options()(
      "prompts", po::value<std::string>()->value_name("FILE"),
      cat("texts to continue, one a line, plain or JSON with \"prompt\" or \"text\"", more,
          ". If not given, the target writes them")
          .c_str())("no-bos", "put no beginning-of-sequence token before a text")(
      "limit", po::value<std::int32_t>()->default_value(limit)->value_name("N"),
      "most prompts, spread evenly over the file")(
      "prompt-tokens", po::value<std::int32_t>()->default_value(tokens)->value_name("N"),
      "first tokens of each prompt that are used");
}

EngineOptions pair_options(const char* command, const po::variables_map& values,
                           const Speculation& speculation) {
  EngineOptions options = engine_options(values, speculation);
  if (options.draft.empty()) {
    throw_usage(
        cat(command,
            " needs a draft model; give --draft MODEL, or --draft self:q4_k, a target in 16 "
            "or 32 bits drafting for itself in fewer"));
  }
  return options;
}

Engine load_pair(EngineOptions request, ProgressLine& progress) {
  request.prefix_cache = false;  // what is measured is a text by itself
  request.progress = [&](const LoadEvent& event) { progress.show(event); };
  return Engine::load(request);
}

ChosenPrompts::ChosenPrompts(const po::variables_map& values)
    : limit_(count_in(values, "limit", 1)), tokens_(count_in(values, "prompt-tokens", 1)) {
  if (values.count("prompts") != 0) file_ = values["prompts"].as<std::string>();
}

void ChosenPrompts::read() {
  if (!written_by_target()) {
    prompts_ = study::spread(study::read_prompts(*file_), limit_);
  } else if (limit_ > study::most_drawn_prompts) {
    throw_usage(cat("--limit ", limit_, ": without --prompts the target writes them; use ",
                    study::most_drawn_prompts, " or fewer"));
  }
}

std::vector<std::vector<TokenId>> ChosenPrompts::tokens_of(Engine& engine, std::uint64_t seed,
                                                           bool add_bos, ProgressLine& progress,
                                                           const std::stop_token& stop) const {
  if (written_by_target()) {
    return study::draw_prompts(engine, limit_, tokens_, seed, stop, [&](double fraction) {
      progress.show("writing prompts", fraction);
    });
  }
  study::PromptUse use;
  use.most = tokens_;
  use.add_bos = add_bos;
  return study::to_tokens(engine, *file_, prompts_, use);
}

}  // namespace coppice::cli
