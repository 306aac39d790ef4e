#include "verify/tree_judge.h"

#include <array>
#include <vector>

#include "base/stopwatch.h"
#include "models/penalty_text.h"

namespace coppice {
namespace {

std::span<const TargetRunner::Text> rows_of(std::span<const TextTree> texts,
                                            std::vector<TargetRunner::Text>& out) {
  out.clear();
  for (const TextTree& text : texts) {
    out.push_back({text.state, text.tree, text.params, text.prefill_rows});
  }
  return out;
}

class HostJudge final : public TreeJudge {
 public:
  using Verifiers = std::array<std::shared_ptr<Verifier>, 3>;  ///< by AcceptanceRule
  HostJudge(TargetRunner& target, Verifiers verifiers)
      : target_(target), verifiers_(std::move(verifiers)) {}

  TargetRunner::Pass judge(std::span<const TextTree> texts, StepSeconds& seconds) override {
    TargetRunner::Pass pass;
    {
      const Stopwatch timing(seconds.verify);
      pass = target_.pass(rows_of(texts, rows_));
      if (!pass) return pass;
      pass->wait();
    }
    seconds.construction += target_.ordering_seconds();
    const Stopwatch timing(seconds.judging);
    static const DistributionTable nothing_drafted;
    for (std::size_t t = 0; t < texts.size(); ++t) {
      const TextTree& text = texts[t];
      if (text.tree == nullptr) continue;
      const DistributionTable* const drafted =
          text.draft == nullptr ? nullptr : text.draft->distributions();
      verifiers_[static_cast<std::size_t>(text.rule)]->judge(
          *text.tree, pass->text(t), drafted == nullptr ? nothing_drafted : *drafted, text.key,
          *text.verdict);
    }
    return pass;
  }

 private:
  TargetRunner& target_;
  const Verifiers verifiers_;
  std::vector<TargetRunner::Text> rows_;
};

class DeviceJudge final : public TreeJudge {
 public:
  DeviceJudge(TargetRunner& target, DeviceSampler& sampler) : target_(target), sampler_(sampler) {}

  TargetRunner::Pass judge(std::span<const TextTree> texts, StepSeconds& seconds) override {
    const Stopwatch timing(seconds.verify);
    const auto prepare = [&](const TargetRunner& pass) { return stage(texts, pass); };
    TargetRunner::Pass pass = target_.pass(rows_of(texts, rows_), prepare);
    if (!pass) return pass;
    seconds.construction += target_.ordering_seconds();
    if (judged_.empty()) {
      pass->wait();
      return pass;
    }
    found_.resize(judged_.size());
    sampler_.collect_verdicts(found_);
    std::size_t found = 0;
    for (const std::int32_t index : pass->order()) {
      const auto t = static_cast<std::size_t>(index);
      if (texts[t].tree == nullptr) continue;
      const DeviceVerdict& of_text = found_[found++];
      const TargetRows& rows = pass->text(t);
      Verdict& verdict = *texts[t].verdict;
      verdict.bonus = of_text.bonus;
      verdict.path.clear();
      for (const std::int32_t row : of_text.rows) {
        verdict.path.push_back(
            rows.order().node_of_row[static_cast<std::size_t>(row - rows.first_logits())]);
      }
    }
    return pass;
  }

 private:
  // Null where there is nothing to judge.
  PassEpilogue* stage(std::span<const TextTree> texts, const TargetRunner& pass) {
    judged_.clear();
    penalties_.resize(texts.size());
    for (const std::int32_t index : pass.order()) {
      const auto t = static_cast<std::size_t>(index);
      const TextTree& text = texts[t];
      if (text.tree == nullptr) continue;
      penalties_[t] = penalty_text(*text.state, text.tree->token, text.tree->parent);
      const bool penalised = changes_logits(*text.state, text.params);
      judged_.push_back({text.key, text.params, text.rule, penalised ? &penalties_[t] : nullptr,
                         text.tree, &pass.text(t).order(), text.draft});
    }
    if (judged_.empty()) return nullptr;
    sampler_.stage_judge(judged_);
    return &sampler_.judge_epilogue();
  }

  TargetRunner& target_;
  DeviceSampler& sampler_;
  std::vector<TargetRunner::Text> rows_;
  std::vector<JudgeText> judged_;       ///< texts with a tree, in the pass's order
  std::vector<PenaltyText> penalties_;  ///< by text
  std::vector<DeviceVerdict> found_;
};

}  // namespace

std::unique_ptr<TreeJudge> make_host_judge(TargetRunner& target, NoiseCache& noise) {
  HostJudge::Verifiers verifiers;
  verifiers[static_cast<std::size_t>(AcceptanceRule::rejection)] = make_rejection_verifier();
  verifiers[static_cast<std::size_t>(AcceptanceRule::greedy)] = make_greedy_verifier();
  verifiers[static_cast<std::size_t>(AcceptanceRule::coupled)] = make_coupled_verifier(noise);
  return std::make_unique<HostJudge>(target, std::move(verifiers));
}

std::unique_ptr<TreeJudge> make_host_judge(TargetRunner& target,
                                           std::unique_ptr<Verifier> verifier) {
  const std::shared_ptr<Verifier> shared = std::move(verifier);
  return std::make_unique<HostJudge>(target, HostJudge::Verifiers{shared, shared, shared});
}

std::unique_ptr<TreeJudge> make_device_judge(TargetRunner& target, DeviceSampler& sampler) {
  return std::make_unique<DeviceJudge>(target, sampler);
}

}  // namespace coppice
