// A policy that does what another one does, but for what a derived class changes.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "drafting/policy.h"

namespace coppice::testing {

class WrappedPolicy : public DraftPolicy {
 public:
  explicit WrappedPolicy(std::unique_ptr<DraftPolicy> policy) : policy_(std::move(policy)) {}
  std::string name() const override { return policy_->name(); }
  void begin(const GrowthLimits& limits, TokenId root) override { policy_->begin(limits, root); }
  Growth growth() const override { return policy_->growth(); }
  void take(DraftSource& source) override { policy_->take(source); }
  void finish(TokenTree& tree) override { policy_->finish(tree); }

 private:
  std::unique_ptr<DraftPolicy> policy_;
};

}  // namespace coppice::testing
