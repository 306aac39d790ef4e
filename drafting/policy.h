// The one interface of all drafting policies.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/token_tree.h"
#include "drafting/draft_source.h"

namespace coppice {

/// Bounds of one tree. All are fixed before the tree is grown: none looks at a token that
/// may still be dropped, so under sampled rejection none biases the output.
struct GrowthLimits {
  std::int32_t max_size = 64;        ///< most nodes, the root not counted
  std::int32_t max_depth = 1 << 20;  ///< most edges below the root; also the most draft passes
  double min_value = 0.0;            ///< positions of lower value are not drawn
};

class AcceptanceCalibration;

class DraftPolicy {
 public:
  virtual ~DraftPolicy() = default;
  virtual std::string name() const = 0;
  /// Grows `tree`, whose root is set, within `limits`. Same noise, same tree.
  virtual void grow(DraftSource& source, const GrowthLimits& limits, TokenTree& tree) = 0;
};

/// DySpec, Algorithm 1: always the position of the highest value, exactly, in as many draft
/// passes as the tree is deep.
std::unique_ptr<DraftPolicy> make_dyspec_policy();
/// DySpec, Algorithm 2: every position of value >= limits.min_value, layer by layer, up to
/// max_size nodes.
std::unique_ptr<DraftPolicy> make_dyspec_threshold_policy();
/// The same two by learned acceptance (drafting/calibration.h) in the place of draft probability.
/// The calibration outlives the policy and does not change while a tree grows. Where any tree is
/// exact (`draw` is not ChildDraw::sampled) the first one also goes by the drawn tokens' own
/// estimates. A node's value is then what its position was valued by.
std::unique_ptr<DraftPolicy> make_calibrated_dyspec_policy(const AcceptanceCalibration& calibration,
                                                           ChildDraw draw);
std::unique_ptr<DraftPolicy> make_calibrated_threshold_policy(
    const AcceptanceCalibration& calibration);
/// One path of max_size tokens.
std::unique_ptr<DraftPolicy> make_chain_policy();

}  // namespace coppice
