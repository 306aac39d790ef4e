#include "cli/totals.h"

#include "base/error.h"
#include "cli/generation_text.h"

namespace coppice::cli {
namespace {

void share(std::string& shared, const std::string& value, const char* several) {
  if (shared.empty()) shared = value;
  if (shared != value) shared = several;
}

}  // namespace

std::string Totals::shortage() const {
  if (without_room_ == 0) return "";
  return cat(
      without_room_, " of ", texts_,
      " texts ended early: context or KV memory was full; raise --kv-tokens, or ask for fewer "
      "tokens");
}

void Totals::add(const Generation& generation) {
  const Statistics& s = generation.statistics;
  const auto steps = static_cast<double>(s.steps);
  ++texts_;
  tokens_ += static_cast<std::int64_t>(generation.tokens.size());
  prompt_tokens_ += s.prompt_tokens;
  cached_tokens_ += s.cached_tokens;
  steps_ += s.steps;
  preemptions_ += s.preemptions;
  const FinishReason reason = generation.finish_reason;
  without_room_ += reason == FinishReason::context || reason == FinishReason::memory ? 1 : 0;
  judged_ += s.accepted_length * steps;
  drafted_ += s.tree_size_mean * steps;
  shared_ += s.batch_mean * steps;
  queue_seconds_ += s.queue_seconds;
  const Used& used = generation.used;
  share(policy_, used.policy, "several policies");
  share(acceptance_, name_of(used.acceptance), "several acceptances");
  share(temperature_, cat("temperature ", used.temperature), "several temperatures");
  if (used.temperature > 0.0) share(seed_, cat(", seed ", used.seed), ", several seeds");
  machine_ = machine_of(used);
}

std::string Totals::table() const {
  if (texts_ == 0) return {};
  std::string text = table_line("texts", cat(texts_, without_room_ > 0 ? ", of which " : "",
                                             without_room_ > 0 ? cat(without_room_,
                                                                     " ended early: no "
                                                                     "room in context or KV memory")
                                                               : std::string()));
  text +=
      table_line("tokens", cat(tokens_, " new after ", prompt_tokens_, " of prompts",
                               cached_tokens_ > 0 ? cat(" (", cached_tokens_, " cached)") : ""));
  text += table_line("speed", cat(fixed(static_cast<double>(tokens_) / seconds_, 1), " tokens/s (",
                                  fixed(seconds_, 3), " s)"));
  if (steps_ > 0) {
    const auto steps = static_cast<double>(steps_);
    text += table_line("accepted length", accepted_of_texts(judged_ / steps));
    text += table_line("tree size", cat(fixed(drafted_ / steps, 1), " on average"));
    text +=
        table_line("side by side", cat(fixed(shared_ / steps, 1), " texts per pass, on average"));
  }
  text += table_line("waited", cat(fixed(queue_seconds_ / static_cast<double>(texts_), 3),
                                   " s for room, on average; ", preemptions_, " preemptions"));
  return text + table_line("as used", cat(policy_, ", ", acceptance_, ", ", temperature_, seed_,
                                          ", ", machine_));
}

}  // namespace coppice::cli
