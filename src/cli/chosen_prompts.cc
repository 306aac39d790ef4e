#include "cli/chosen_prompts.h"

#include "base/error.h"
#include "study/prompts/prompts.h"

namespace coppice::cli {

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
                                                           bool add_bos) const {
  if (written_by_target()) return study::draw_prompts(engine, limit_, tokens_, seed);
  study::PromptUse use;
  use.most = tokens_;
  use.add_bos = add_bos;
  return study::to_tokens(engine, *file_, prompts_, use);
}

}  // namespace coppice::cli
