// The sampler's judging of trees.
#include <algorithm>

#include "kernels/cuda/sampling/sampler.h"
#include "kernels/cuda/sampling/sampler_parts.h"

namespace coppice::cuda {
namespace {

bool is_certain(const JudgeBatch& batch, std::size_t row) {
  return !batch.certain.empty() && batch.certain[row] != 0;
}

}  // namespace

// Lists children by rank, one after the other. A tree begins with each root.
void CudaSampler::link_children(const JudgeBatch& batch) {
  JudgeInput* const inputs = on_host(plan_.judge_rows);
  std::int32_t* const child_row = on_host(plan_.judge.child_row);
  std::int32_t* const child_token = on_host(plan_.judge.child_token);
  const std::size_t rows = batch.token.size();
  roots_.clear();
  for (std::size_t r = 0; r < rows; ++r) {
    const std::int32_t parent = batch.parent[r];
    if (parent == -1) roots_.push_back(static_cast<std::int32_t>(r));
    inputs[r] = JudgeInput{};
    inputs[r].store = batch.store[r];
    inputs[r].depth = batch.depth[r];
    inputs[r].node_key = batch.key[r];
    inputs[r].mask = batch.mask.empty() ? -1 : write_mask(plan_.judge, batch.mask[r].get());
    inputs[r].text = static_cast<std::int32_t>(roots_.size()) - 1;
    const bool in_order =
        parent == -1 || (!roots_.empty() && parent >= roots_.back() && to_size(parent) < r);
    if (!in_order || roots_.size() > batch.texts.size() || batch.token[r] < 0 ||
        batch.token[r] >= plan_.target_vocab || batch.store[r] >= limits_.store_rows) {
      throw_failure(cat("CUDA sampler: row ", r, " of the tree has parent ", parent, ", token ",
                        batch.token[r], ", store row ", batch.store[r]));
    }
    if (parent < 0) continue;
    ++inputs[parent].children;
    if (!is_certain(batch, r)) inputs[parent].drawn_from = 1;
  }
  if (roots_.size() != batch.texts.size()) {
    throw_failure(cat("CUDA sampler: ", roots_.size(), " trees of ", batch.texts.size(), " texts"));
  }
  std::int32_t first = 0;
  for (std::size_t r = 0; r < rows; ++r) {
    inputs[r].first_child = first;
    std::fill_n(child_row + first, inputs[r].children, -1);
    first += inputs[r].children;
    const AcceptanceRule rule = batch.texts[to_size(inputs[r].text)].rule;
    const bool draft_needed = rule == AcceptanceRule::rejection && inputs[r].drawn_from != 0;
    if (draft_needed && (inputs[r].store < 0 || plan_.common_vocab == 0)) {
      throw_failure(cat("CUDA sampler: row ", r, " has children, but no draft distribution"));
    }
  }
  for (std::size_t r = 0; r < rows; ++r) {
    if (batch.parent[r] < 0) continue;
    const JudgeInput& parent = inputs[batch.parent[r]];
    const std::int32_t rank = batch.rank[r];
    if (rank < 0 || rank >= parent.children || child_row[parent.first_child + rank] >= 0) {
      throw_failure(cat("CUDA sampler: row ", r, " has rank ", rank, " among ", parent.children,
                        " siblings"));
    }
    child_row[parent.first_child + rank] = static_cast<std::int32_t>(r);
    const bool sampled = batch.texts[to_size(inputs[r].text)].rule == AcceptanceRule::rejection;
    child_token[parent.first_child + rank] =
        sampled && is_certain(batch, r) ? ~batch.token[r] : batch.token[r];
  }
}

void CudaSampler::stage_judge(const JudgeBatch& batch) {
  const std::size_t rows = batch.token.size(), texts = batch.texts.size();
  check_batch("judge", rows, texts);
  if (batch.parent.size() != rows || batch.depth.size() != rows || batch.rank.size() != rows ||
      batch.key.size() != rows || batch.store.size() != rows ||
      (!batch.certain.empty() && batch.certain.size() != rows) ||
      (!batch.mask.empty() && batch.mask.size() != rows)) {
    throw_failure("CUDA sampler: the arrays of trees differ in length");
  }
  judge_staged_ = 0;  // until all is well
  transfers_.wait();
  write_head(plan_.judge, rows, texts);
  masks_.clear();
  link_children(batch);
  JudgeInput* const inputs = on_host(plan_.judge_rows);
  Used used{};
  for (std::size_t t = 0; t < texts; ++t) {
    const auto input_of_text = [&](std::size_t i) {
      const JudgeText& text = batch.texts[i];
      return TextInput{text.params, text.key, text.rule, text.penalty};
    };
    SamplingSetting setting =
        setting_of(plan_.judge, input_of_text(t), input_of_text((t + 1) % texts), used);
    setting.root = roots_[t];
    const std::size_t end = t + 1 < texts ? to_size(roots_[t + 1]) : rows;
    const JudgeText& text = batch.texts[t];
    const bool with_paths = needs_path(text.penalty, text.params);
    for (std::size_t r = to_size(roots_[t]); r < end && with_paths; ++r) {
      const Path path =
          write_path(plan_.judge, *text.penalty, static_cast<std::int32_t>(r), used.path_tokens);
      inputs[r].path_begin = path.begin;
      inputs[r].path_count = path.count;
    }
    on_host(plan_.judge.settings)[t] = setting;
  }
  hand_over(plan_.judge, plan_.judge.child_token.at + rows * sizeof(std::int32_t), used);
  judge_batch_ = batches_;
  judge_staged_ = rows;
}

void CudaSampler::judge(float* logits, std::int32_t rows) {
  rows = launched("judge", rows, judge_staged_);
  const JudgeView view{on_device(plan_.judge.head),
                       on_device(plan_.judge.settings),
                       on_device(plan_.judge_rows),
                       on_device(plan_.judge.child_row),
                       on_device(plan_.judge.child_token),
                       penalty_view(plan_.judge),
                       mask_view(plan_.judge)};
  const TargetView target{logits, on_device(plan_.target_statistics),
                          on_device(plan_.target_slices), plan_.target_vocab};
  const VerdictView verdict{on_device(plan_.outcomes),
                            {on_device(plan_.judge_finished), on_host(plan_.judge_mark)},
                            on_host(plan_.tree_verdicts),
                            on_host(plan_.accepted_rows)};
  process_target_rows(view, target, rows, stream_);
  couple_target_rows(view, target, rows, stream_);
  judge_tree(view, target, store_view(), verdict, rows, faulty(), stream_);
}

void CudaSampler::collect_verdicts(std::span<DeviceVerdict> out) {
  if (judge_staged_ == 0 || out.size() != roots_.size()) {
    throw_failure(cat("CUDA sampler: verdicts on ", out.size(), " trees asked for, ",
                      judge_staged_ == 0 ? 0 : roots_.size(), " judged"));
  }
  wait_for(
      {judge_batch_, plan_.judge.head, plan_.judge_mark, plan_.judge_finished, "judging trees"});
  for (std::size_t t = 0; t < out.size(); ++t) {
    const TreeVerdict& verdict = on_host(plan_.tree_verdicts)[t];
    const std::int32_t* const rows = on_host(plan_.accepted_rows) + roots_[t];
    const std::size_t accepted = to_size(verdict.accepted);
    if (verdict.bonus == no_distribution) {
      throw_no_finite_logit("target", to_size(accepted == 0 ? roots_[t] : rows[accepted - 1]));
    }
    out[t].bonus = verdict.bonus;
    out[t].rows.assign(rows, rows + accepted);
  }
}

}  // namespace coppice::cuda
