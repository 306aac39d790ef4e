#include <utility>

#include "study/audit/tests.h"
#include "verify/planted_faults.h"

namespace coppice::study {
namespace {

PlantedFault judging(const char* name, JudgingFault fault) {
  return {name, [fault](EngineAccess& engine) {
            engine.judge_by([fault] { return make_faulty_rejection_verifier(fault); });
          }};
}

PlantedFault drawing(const char* name, DrawingFault fault) {
  return {name, [fault](EngineAccess& engine) { engine.plant(fault); }};
}

PlantedFault on_device(const char* name, DeviceFault fault) {
  return {name, [fault](EngineAccess& engine) { engine.plant(fault); }};
}

}  // namespace

std::vector<PlantedFault> faults_for(const EngineAccess& engine, Acceptance acceptance) {
  const PlantedFault rope{"target's rows rotated by index, not depth",
                          [](EngineAccess& e) { e.change_passes(rotate_by_index); }};
  if (acceptance == Acceptance::coupled) {
    std::vector<PlantedFault> faults = {rope};
    if (!engine.judges_on_device()) {
      faults.push_back({"coupled trees judged by rejection", [](EngineAccess& e) {
                          e.judge_by([] { return make_rejection_verifier(); });
                        }});
    }
    return faults;
  }
  if (engine.judges_on_device()) {
    using enum DeviceFault;
    return {on_device("children drawn from two tokens, declared from all", declared_is_not_sampled),
            on_device("nodes of equal depth share noise", same_depth_shares_noise),
            on_device("retried positions share noise", retry_shares_noise),
            on_device("siblings share a uniform", siblings_share_uniform),
            on_device("last token from the target, not the residual", residual_is_target),
            on_device("siblings judged without residual", accept_without_residual),
            on_device("draft's mass not renormalised", draft_mass_not_renormalised),
            on_device("softmax of the residual", target_softmax_of_residual),
            rope};
  }
  using Judging = JudgingFault;
  using Drawing = DrawingFault;
  return {judging("residual not renormalised", Judging::residual_not_renormalised),
          judging("accepted at ratio 0", Judging::accepts_at_zero),
          judging("siblings share a uniform", Judging::siblings_share_uniform),
          judging("residual shares the draft's noise", Judging::residual_shares_draft_noise),
          judging("siblings judged out of order", Judging::sibling_order_lost),
          judging("judged by another draft law than drawn from", Judging::declared_is_not_sampled),
          drawing("children drawn from two tokens, declared from all",
                  Drawing::declared_is_not_sampled),
          drawing("nodes of equal depth share noise", Drawing::same_depth_shares_noise),
          drawing("retried positions share noise", Drawing::retry_shares_noise),
          rope};
}

FaultGuard::FaultGuard(Engine& engine) : engine_(engine), rule_(engine_.judge_by({})) {
  engine_.judge_by(rule_);
}

FaultGuard::~FaultGuard() {
  engine_.judge_by(std::move(rule_));
  if (engine_.draft().model != nullptr) engine_.plant(DrawingFault::none);
  engine_.change_passes({});
  if (engine_.judges_on_device()) engine_.plant(DeviceFault::none);
}

}  // namespace coppice::study
