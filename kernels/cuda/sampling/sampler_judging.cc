// The sampler's judging of trees.
#include <algorithm>

#include "kernels/cuda/sampling/sampler.h"
#include "kernels/cuda/sampling/sampler_parts.h"

namespace coppice::cuda {

// Lists the trees' rows, and each row's children as they were drawn.
void CudaSampler::list_rows(std::span<const JudgeText> texts) {
  JudgeInput* const inputs = on_host(plan_.judge_rows);
  std::int32_t* const child_row = on_host(plan_.judge.child_row);
  std::int32_t* const child_token = on_host(plan_.judge.child_token);
  roots_.clear();
  std::int32_t rows = 0, children = 0;
  for (const JudgeText& text : texts) {
    const TokenTree& tree = *text.tree;
    const bool sampled = text.rule == AcceptanceRule::rejection;
    const std::int32_t root = rows;
    roots_.push_back(root);
    for (const std::int32_t node : text.order->node_of_row) {
      const std::size_t n = to_size(node);
      JudgeInput& input = inputs[rows] = {};
      input.depth = tree.depth[n];
      input.node_key = tree.key[n];
      input.mask = write_mask(plan_.judge, tree.mask(node));
      input.text = static_cast<std::int32_t>(roots_.size()) - 1;
      input.first_child = children;
      for (std::int32_t child = tree.first_child[n]; child >= 0;
           child = tree.next_sibling[to_size(child)]) {
        const TokenId token = tree.token[to_size(child)];
        const bool certain = tree.is_certain(child);
        child_row[children] = root + text.order->row_of_node[to_size(child)];
        child_token[children++] = sampled && certain ? ~token : token;
        if (!certain) input.drawn_from = 1;
      }
      input.children = children - input.first_child;
      if (input.children > 0 && text.draft != nullptr) {
        input.store = text.draft->store_row(tree.candidate[n]);
      }
      if (tree.token[n] < 0 || tree.token[n] >= plan_.target_vocab ||
          input.store >= limits_.store_rows) {
        throw_failure(cat("CUDA sampler: row ", rows, " of the trees has token ", tree.token[n],
                          ", store row ", input.store));
      }
      if (sampled && input.drawn_from != 0 && (input.store < 0 || plan_.common_vocab == 0)) {
        throw_failure(cat("CUDA sampler: row ", rows, " has children, but no draft distribution"));
      }
      ++rows;
    }
  }
}

void CudaSampler::stage_judge(std::span<const JudgeText> texts) {
  std::size_t rows = 0;
  for (const JudgeText& text : texts) rows += text.order->node_of_row.size();
  check_batch("judge", rows, texts.size());
  judge_staged_ = 0;  // until all is well
  transfers_.wait();
  write_head(plan_.judge, rows, texts.size());
  masks_.clear();
  list_rows(texts);
  JudgeInput* const inputs = on_host(plan_.judge_rows);
  Used used{};
  for (std::size_t t = 0; t < texts.size(); ++t) {
    const auto input_of_text = [&](std::size_t i) {
      const JudgeText& text = texts[i];
      return TextInput{text.params, text.key, text.rule, text.penalty};
    };
    SamplingSetting setting =
        setting_of(plan_.judge, input_of_text(t), input_of_text((t + 1) % texts.size()), used);
    setting.root = roots_[t];
    const JudgeText& text = texts[t];
    JudgeInput* input = inputs + roots_[t];
    const bool with_paths = needs_path(text.penalty, text.params);
    for (std::size_t r = 0; r < text.order->node_of_row.size() && with_paths; ++r, ++input) {
      const Path path =
          write_path(plan_.judge, *text.penalty, text.order->node_of_row[r], used.path_tokens);
      input->path_begin = path.begin;
      input->path_count = path.count;
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
