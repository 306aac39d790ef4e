#include "drafting/draft_prefill.h"

#include <algorithm>

namespace coppice {
namespace {

/// Tokens at a prompt's end that the fit is judged by.
constexpr std::int32_t most_scored = 16;

bool score_alike(const SamplingParams& a, const SamplingParams& b) {
  return a.temperature == b.temperature && a.top_k == b.top_k && a.top_p == b.top_p &&
         a.min_p == b.min_p;
}

}  // namespace

bool DraftPrefill::pass(std::span<DraftPrompt> prompts) {
  clear();
  // Slots without KV must not stay with their texts.
  struct Guard {
    std::vector<Part>& parts;
    bool computed = false;
    ~Guard() {
      if (computed) return;
      for (const Part& part : parts) part.prompt->state->draft_slots.cut(part.before);
    }
  } guard{parts_};
  for (DraftPrompt& prompt : prompts) {
    prompt.rows = 0;
    if (!prompt.done() && !add(prompt)) break;
  }
  if (tokens_.empty()) return false;
  // The lists are whole only now: slots of a text lie where they will stay.
  std::int32_t first = 0;
  for (const Part& part : parts_) {
    const std::int32_t rows = part.prompt->rows;
    const std::span<const KvSlot> slots = part.prompt->state->draft_slots.all();
    segments_.push_back(
        {slots.first(static_cast<std::size_t>(part.before)), first, first + rows, true, 0});
    for (std::int32_t row = 0; row < rows; ++row) {
      segments_.push_back({slots.subspan(static_cast<std::size_t>(part.before + row), 1),
                           first + row, first + rows, false, part.before + row});
    }
    first += rows;
  }
  PassTail* const tail = next_.empty() ? nullptr : sampling_.prepare_scores(next_, params_);
  const float* const logits =
      model_.forward({tokens_, positions_, write_slots_, segments_, logit_rows_}, pool_, tail);
  guard.computed = true;
  if (next_.empty()) return true;
  scores_.resize(next_.size());
  sampling_.take_scores(next_, params_, logits, scores_);
  const float* score = scores_.data();
  for (const Part& part : parts_) {
    if (part.scored == 0) continue;
    double sum = 0.0;
    for (std::int32_t i = 0; i < part.scored; ++i) sum += static_cast<double>(*score++);
    part.prompt->fit = sum / part.scored;
  }
  return true;
}

void DraftPrefill::clear() {
  parts_.clear();
  segments_.clear();
  write_slots_.clear();
  positions_.clear();
  logit_rows_.clear();
  tokens_.clear();
  next_.clear();
  kv_tokens_ = 0;
}

// False: the pass is full.
bool DraftPrefill::add(DraftPrompt& prompt) {
  const ModelOptions& options = model_.options();
  SequenceState& state = *prompt.state;
  const std::int32_t before = state.draft_slots.size(), missing = state.length() - 1 - before;
  const auto listed = static_cast<std::int32_t>(tokens_.size());
  const std::int32_t rows =
      std::min({missing, options.max_rows - listed, options.max_kv_tokens - kv_tokens_ - before});
  if (rows <= 0) return false;
  const std::int32_t scored = rows == missing ? std::min(rows, most_scored) : 0;
  if (scored > 0) {
    if (scored + static_cast<std::int32_t>(next_.size()) > options.max_logit_rows) return false;
    // One setting for all that are scored in a pass.
    if (next_.empty()) params_ = prompt.params;
    if (!score_alike(prompt.params, params_)) return false;
  }
  parts_.reserve(parts_.size() + 1);
  if (!state.draft_slots.take(rows)) {
    prompt.out_of_slots = true;
    return true;
  }
  parts_.push_back({&prompt, before, scored});
  prompt.rows = rows;
  kv_tokens_ += before + rows;
  const std::span<const KvSlot> slots =
      state.draft_slots.all().subspan(static_cast<std::size_t>(before));
  write_slots_.insert(write_slots_.end(), slots.begin(), slots.end());
  for (std::int32_t row = 0; row < rows; ++row) {
    tokens_.push_back(state.tokens[static_cast<std::size_t>(before + row)]);
    positions_.push_back(before + row);
    if (row < rows - scored) continue;
    logit_rows_.push_back(listed + row);
    next_.push_back(state.tokens[static_cast<std::size_t>(before + row + 1)]);
  }
  return true;
}

}  // namespace coppice
