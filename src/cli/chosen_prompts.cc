#include "cli/chosen_prompts.h"

#include "base/error.h"
#include "study/drawn_prompts.h"
#include "study/prompt_tokens.h"
#include "study/settings.h"

namespace coppice::cli {

ChosenPrompts::ChosenPrompts(const po::variables_map& values)
    : limit_(values["limit"].as<std::int32_t>()),
      tokens_(values["prompt-tokens"].as<std::int32_t>()) {
  if (values.count("prompts") != 0) file_ = values["prompts"].as<std::string>();
  if (limit_ < 1) throw_usage(cat("--limit ", limit_, ": use 1 or more"));
  if (tokens_ < 1) throw_usage(cat("--prompt-tokens ", tokens_, ": use 1 or more"));
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
                                                           bool add_bos) const {
  if (written_by_target()) return study::draw_prompts(engine, limit_, tokens_, seed);
  study::PromptUse use;
  use.most = tokens_;
  use.add_bos = add_bos;
  return study::to_tokens(engine, *file_, prompts_, use);
}

}  // namespace coppice::cli
