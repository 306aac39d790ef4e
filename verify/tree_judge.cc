#include "verify/tree_judge.h"

#include "base/stopwatch.h"

namespace coppice {
namespace {

class HostJudge final : public TreeJudge {
 public:
  HostJudge(TargetRunner& target, std::unique_ptr<AcceptanceRule> rule)
      : target_(target), rule_(std::move(rule)) {}

  TargetRunner::Pass judge(SequenceState& state, const TokenTree& tree,
                           const SamplingParams& params, const DraftEvidence* draft,
                           const StepKey& key, Verdict& verdict, StepSeconds& seconds) override {
    TargetRunner::Pass pass;
    {
      const Stopwatch timing(seconds.verify);
      pass = target_.pass(state, tree, params);
      if (!pass) return pass;
      pass->wait();
    }
    seconds.construction += target_.ordering_seconds();
    static const DistributionTable nothing_drafted;
    const DistributionTable* const drafted = draft == nullptr ? nullptr : draft->distributions();
    const Stopwatch timing(seconds.judging);
    rule_->judge(tree, *pass, drafted == nullptr ? nothing_drafted : *drafted, key, verdict);
    return pass;
  }

 private:
  TargetRunner& target_;
  std::unique_ptr<AcceptanceRule> rule_;
};

class DeviceJudge final : public TreeJudge {
 public:
  DeviceJudge(TargetRunner& target, DeviceSampler& sampler, DeviceNoise rule)
      : target_(target), sampler_(sampler) {
    batch_.rule = rule;
  }

  TargetRunner::Pass judge(SequenceState& state, const TokenTree& tree,
                           const SamplingParams& params, const DraftEvidence* draft,
                           const StepKey& key, Verdict& verdict, StepSeconds& seconds) override {
    const Stopwatch timing(seconds.verify);
    batch_.key = key;
    batch_.params = params;
    const auto prepare = [&](const TreeOrder& order) -> PassTail* {
      stage(state, tree, order, draft);
      return &sampler_.judge_tail();
    };
    TargetRunner::Pass pass = target_.pass(state, tree, params, prepare);
    if (!pass) return pass;
    seconds.construction += target_.ordering_seconds();
    sampler_.collect_verdict(found_);
    verdict.bonus = found_.bonus;
    verdict.path.clear();
    for (const std::int32_t row : found_.rows) {
      verdict.path.push_back(target_.order().node_of_row[static_cast<std::size_t>(row)]);
    }
    return pass;
  }

 private:
  void stage(const SequenceState& state, const TokenTree& tree, const TreeOrder& order,
             const DraftEvidence* draft) {
    const auto rows = static_cast<std::size_t>(order.rows());
    token_.resize(rows);
    parent_.resize(rows);
    depth_.resize(rows);
    rank_.resize(rows);
    store_.assign(rows, -1);
    for (std::size_t r = 0; r < rows; ++r) {
      const auto node = static_cast<std::size_t>(order.node_of_row[r]);
      const std::int32_t parent = tree.parent[node];
      token_[r] = tree.token[node];
      parent_[r] = parent < 0 ? -1 : order.row_of_node[static_cast<std::size_t>(parent)];
      depth_[r] = tree.depth[node];
      rank_[r] = tree.rank[node];
      // D is wanted of nodes with children; in depth-first order a child follows its parent.
      if (parent_[r] < 0) continue;
      std::int32_t& of_parent = store_[static_cast<std::size_t>(parent_[r])];
      if (of_parent < 0 && draft != nullptr) {
        of_parent = draft->store_row(tree.source[static_cast<std::size_t>(parent)]);
      }
    }
    batch_.token = token_;
    batch_.parent = parent_;
    batch_.depth = depth_;
    batch_.rank = rank_;
    batch_.store = store_;
    penalty_ = {state.counts.counts(), token_, parent_};
    batch_.penalty = batch_.params.repetition_penalty == 1.0 ? nullptr : &penalty_;
    sampler_.stage_judge(batch_);
  }

  TargetRunner& target_;
  DeviceSampler& sampler_;
  JudgeBatch batch_;
  PenaltyText penalty_;
  DeviceVerdict found_;
  std::vector<TokenId> token_;
  std::vector<std::int32_t> parent_, depth_, rank_, store_;
};

}  // namespace

std::unique_ptr<TreeJudge> make_host_judge(TargetRunner& target,
                                           std::unique_ptr<AcceptanceRule> rule) {
  return std::make_unique<HostJudge>(target, std::move(rule));
}

std::unique_ptr<TreeJudge> make_device_judge(TargetRunner& target, DeviceSampler& sampler,
                                             DeviceNoise rule) {
  return std::make_unique<DeviceJudge>(target, sampler, rule);
}

}  // namespace coppice
