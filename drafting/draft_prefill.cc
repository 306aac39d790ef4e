#include "drafting/draft_prefill.h"

#include <algorithm>
#include <utility>

namespace coppice {
namespace {

/// Tokens at a prompt's end that the prompt likelihood is measured over.
constexpr std::int32_t most_scored = 16;
/// Fewer say nothing, unless they are all that there is.
constexpr std::int32_t least_scored = 4;

bool score_alike(const SamplingParams& a, const SamplingParams& b) {
  return a.temperature == b.temperature && a.top_k == b.top_k && a.top_p == b.top_p &&
         a.min_p == b.min_p;
}

}  // namespace

bool DraftPrefill::pass(std::span<DraftPrompt> prompts) {
  clear();
  // What was not kept goes back at once.
  struct Guard {
    std::vector<Part>& parts;
    ~Guard() {
      for (Part& part : parts) part.slots.cut(0);
    }
  } guard{parts_};
  for (DraftPrompt& prompt : prompts) {
    prompt.rows = 0;
    if (!prompt.done() && !add(prompt)) break;
  }
  if (parts_.empty()) return false;
  for (const Part& part : parts_) {
    const SequenceState& state = *part.prompt->state;
    layout_.add(state.base, state.draft_slots.all(), part.prompt->rows, state.draft_begin());
  }
  layout_.arrange();
  for (const std::int32_t index : layout_.order()) list(index);
  PassEpilogue* const epilogue = next_.empty() ? nullptr : sampling_.prepare_scores(next_, params_);
  const float* const logits =
      model_.forward({tokens_, positions_, write_slots_, segments_, logit_rows_}, pool_, epilogue);
  for (Part& part : parts_) keep(part);
  if (next_.empty()) return true;
  scores_.resize(next_.size());
  sampling_.take_scores(next_, params_, logits, scores_);
  const float* score = scores_.data();
  for (const std::int32_t index : layout_.order()) {
    const Part& part = parts_[static_cast<std::size_t>(index)];
    if (part.scored == 0) continue;
    double sum = 0.0;
    for (std::int32_t i = 0; i < part.scored; ++i) sum += static_cast<double>(*score++);
    part.prompt->likelihood = sum / part.scored;
  }
  return true;
}

void DraftPrefill::clear() {
  parts_.clear();
  layout_.begin(PassLayout::Of::draft);
  segments_.clear();
  write_slots_.clear();
  positions_.clear();
  logit_rows_.clear();
  tokens_.clear();
  next_.clear();
  rows_ = scored_ = 0;
}

// False: the pass is full.
bool DraftPrefill::add(DraftPrompt& prompt) {
  const ModelOptions& options = model_.options();
  SequenceState& state = *prompt.state;
  state.yield_draft();
  if (prompt.done()) return true;
  const std::int32_t before = state.draft_kv(), missing = state.length() - 1 - before;
  const CacheNode* const gap = state.fills_draft() ? state.base.draft_gap() : nullptr;
  const bool waits = gap != nullptr && std::any_of(parts_.begin(), parts_.end(),
                                                   [&](const Part& p) { return p.gap == gap; });
  if (waits) return true;
  const std::int32_t rows = std::min(missing, options.max_rows - rows_);
  if (rows <= 0) return false;
  const bool tells = rows == missing && (before == 0 || rows >= least_scored);
  const std::int32_t scored = tells ? std::min(rows, most_scored) : 0;
  if (scored > 0) {
    if (scored + scored_ > options.max_logit_rows) return false;
    // One setting for all that are scored in a pass.
    if (scored_ == 0) params_ = prompt.params;
    if (!score_alike(prompt.params, params_)) return false;
  }
  KvSlots slots(&pool_);
  if (!slots.take(rows)) {
    prompt.out_of_slots = true;
    return true;
  }
  state.draft_slots.make_room(rows);  // so that keeping cannot fail
  parts_.push_back({&prompt, before, scored, gap, std::move(slots)});
  prompt.rows = rows;
  rows_ += rows;
  scored_ += scored;
  return true;
}

// A part's rows behind those listed.
void DraftPrefill::list(std::int32_t index) {
  const Part& part = parts_[static_cast<std::size_t>(index)];
  const SequenceState& state = *part.prompt->state;
  const std::int32_t first = layout_.first_row(index), rows = part.prompt->rows;
  const std::span<const KvSlot> slots = part.slots.all();
  layout_.list_before(index, segments_);
  write_slots_.insert(write_slots_.end(), slots.begin(), slots.end());
  for (std::int32_t row = 0; row < rows; ++row) {
    segments_.push_back({slots.subspan(static_cast<std::size_t>(row), 1), first + row, first + rows,
                         false, part.before + row});
    tokens_.push_back(state.tokens[static_cast<std::size_t>(part.before + row)]);
    positions_.push_back(part.before + row);
    if (row < rows - part.scored) continue;
    logit_rows_.push_back(first + row);
    next_.push_back(state.tokens[static_cast<std::size_t>(part.before + row + 1)]);
  }
}

// What the text shares is the tree's.
void DraftPrefill::keep(Part& part) {
  SequenceState& state = *part.prompt->state;
  if (part.gap != nullptr) {
    state.base.fill_draft(part.slots, part.before,
                          std::min(state.base.length() - part.before, part.slots.size()));
    if (part.slots.size() == 0) return;
    // Without memory for the tree's part.
    if (state.base.draft_length() < state.base.length()) state.draft_from = state.base.length();
  }
  state.draft_slots.keep(part.slots, 0, part.slots.size());
}

}  // namespace coppice
