#include "cli/totals.h"

#include <cstdio>

#include "base/error.h"

namespace coppice::cli {
namespace {

std::string line(const char* name, const std::string& value) {
  std::string text = cat("  ", name);
  text.resize(19, ' ');
  return text + value + "\n";
}

std::string rounded(double number, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, number);
  return text;
}

}  // namespace

void Totals::add(const Generation& generation) {
  const Statistics& s = generation.statistics;
  const auto steps = static_cast<double>(s.steps);
  ++texts_;
  tokens_ += static_cast<std::int64_t>(generation.tokens.size());
  prompt_tokens_ += s.prompt_tokens;
  steps_ += s.steps;
  preemptions_ += s.preemptions;
  const FinishReason reason = generation.finish_reason;
  without_room_ += reason == FinishReason::context || reason == FinishReason::memory ? 1 : 0;
  judged_ += s.accepted_length * steps;
  drafted_ += s.tree_size_mean * steps;
  shared_ += s.batch_mean * steps;
  queue_seconds_ += s.queue_seconds;
}

std::string Totals::table(double seconds) const {
  if (texts_ == 0) return {};
  std::string text = line("texts", cat(texts_, without_room_ > 0 ? ", of which " : "",
                                       without_room_ > 0 ? cat(without_room_,
                                                               " ended early: no "
                                                               "room in context or KV memory")
                                                         : std::string()));
  text += line("tokens", cat(tokens_, " new after ", prompt_tokens_, " of prompts"));
  text += line("speed", cat(rounded(static_cast<double>(tokens_) / seconds, 1), " tokens/s (",
                            rounded(seconds, 3), " s)"));
  if (steps_ > 0) {
    const auto steps = static_cast<double>(steps_);
    text +=
        line("accepted length", cat(rounded(judged_ / steps, 2),
                                    " tokens per text and target pass, the bonus token included"));
    text += line("tree size", cat(rounded(drafted_ / steps, 1), " on average"));
    text += line("side by side", cat(rounded(shared_ / steps, 1), " texts per pass, on average"));
  }
  return text + line("waited", cat(rounded(queue_seconds_ / static_cast<double>(texts_), 3),
                                   " s for room, on average; ", preemptions_, " preemptions"));
}

}  // namespace coppice::cli
