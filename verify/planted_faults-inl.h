// Faults of judging, planted into the rule itself by its template parameters or in what it is
// given, over any source of decisions. Included by verify/planted_faults.cc and tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "verify/planted_faults.h"
#include "verify/rejection-inl.h"

namespace coppice {

/// Decisions by wrong addresses, or by coarse numbers.
template <typename Decisions>
class FaultyJudging {
 public:
  FaultyJudging(JudgingFault fault, Decisions decide) : fault_(fault), decide_(std::move(decide)) {}

  template <typename Outcome>
  auto operator()(RandomAddress at, const Outcome& outcome) {
    if (at.stream == RandomStream::accept) {
      if (fault_ == JudgingFault::siblings_share_uniform) at.index = 0;
      if (fault_ == JudgingFault::accepts_at_zero) {
        // Just below x, `<` is as `<=` at x.
        return decide_(at, [&](double u) {
          return outcome(std::nextafter(std::floor(u * 16.0) / 16.0, -1.0));
        });
      }
    }
    if (at.stream == RandomStream::residual &&
        fault_ == JudgingFault::residual_shares_draft_noise) {
      at.stream = RandomStream::draft;
    }
    return decide_(at, outcome);
  }

 private:
  JudgingFault fault_;
  Decisions decide_;
};

/// The residual keeps its mass from sibling to sibling.
struct UnnormalisedRejection : NodeRejection {
  void note_masses(double residual, double draft) {
    NodeRejection::note_masses(residual > no_mass ? 1.0 : 0.0, draft);
  }
};

/// A residual below a hundredth counts as rounding.
struct CarelessRejection : NodeRejection {
  bool has_residual() const { return residual_left > 1e-2; }
};

/// D is not told of children from no distribution.
struct UntoldRejection : NodeRejection {
  void reject_certain(double) {}
};

/// Children from no distribution may be written after they were refused.
struct RepeatingRejection : NodeRejection {
  static constexpr bool certain_leave = false;
};

/// Judges a tree whose siblings have been brought into the order of their tokens.
class OrderLost final : public Verifier {
 public:
  explicit OrderLost(std::unique_ptr<Verifier> verifier) : verifier_(std::move(verifier)) {}
  std::string name() const override { return "rejection, sibling order lost"; }
  void judge(const TokenTree& tree, TargetSource& target, const DistributionTable& draft,
             const StepKey& key, Verdict& verdict) override;

 private:
  std::unique_ptr<Verifier> verifier_;
};

/// Judges by the square root of D, renormalised.
class OtherDraft final : public Verifier {
 public:
  explicit OtherDraft(std::unique_ptr<Verifier> verifier) : verifier_(std::move(verifier)) {}
  std::string name() const override {
    return "rejection, declared distribution is not the one sampled";
  }
  void judge(const TokenTree& tree, TargetSource& target, const DistributionTable& draft,
             const StepKey& key, Verdict& verdict) override;

 private:
  std::unique_ptr<Verifier> verifier_;
};

template <typename Decisions>
std::unique_ptr<Verifier> make_faulty_rejection_verifier(JudgingFault fault,
                                                         const Decisions& decide) {
  const auto with = [&](const char* name) {
    return std::make_unique<RejectionVerifier<FaultyJudging<Decisions>>>(
        FaultyJudging<Decisions>(fault, decide), name);
  };
  switch (fault) {
    case JudgingFault::residual_not_renormalised:
      return std::make_unique<RejectionVerifier<Decisions, UnnormalisedRejection>>(
          decide, "rejection, residual not renormalised");
    case JudgingFault::small_residual_is_target:
      return std::make_unique<RejectionVerifier<Decisions, CarelessRejection>>(
          decide, "rejection, residual below 1% replaced by the target");
    case JudgingFault::draft_keeps_looked_up:
      return std::make_unique<RejectionVerifier<Decisions, UntoldRejection>>(
          decide, "rejection, looked-up tokens stay in the draft");
    case JudgingFault::residual_keeps_looked_up:
      return std::make_unique<RejectionVerifier<Decisions, RepeatingRejection>>(
          decide, "rejection, looked-up tokens stay in the residual");
    case JudgingFault::accepts_at_zero:
      return with("rejection, accepts at probability 0");
    case JudgingFault::siblings_share_uniform:
      return with("rejection, siblings share a uniform");
    case JudgingFault::residual_shares_draft_noise:
      return with("rejection, residual shares noise with drafting");
    case JudgingFault::sibling_order_lost:
      return std::make_unique<OrderLost>(std::make_unique<RejectionVerifier<Decisions>>(decide));
    case JudgingFault::declared_is_not_sampled:
      return std::make_unique<OtherDraft>(std::make_unique<RejectionVerifier<Decisions>>(decide));
  }
  return std::make_unique<RejectionVerifier<Decisions>>(decide);
}

}  // namespace coppice
