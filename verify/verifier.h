// Which path of a token tree is kept, and which token follows it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/distributions.h"
#include "base/random.h"
#include "base/token_tree.h"
#include "kernels/noise.h"

namespace coppice {

/// The target's processed distribution at tree nodes, computed when a walk first asks.
class TargetSource {
 public:
  virtual ~TargetSource() = default;
  /// T at `node`: the distribution of the token after it, [vocab], summing to 1. Valid until
  /// the next call.
  virtual std::span<const float> distribution(std::int32_t node) = 0;
  /// The token of largest probability at `node`, lowest id among equals (temperature 0).
  virtual TokenId argmax(std::int32_t node) = 0;
};

struct Verdict {
  std::vector<std::int32_t> path;  ///< accepted nodes, root excluded, in order
  TokenId bonus = -1;              ///< the token after the last accepted one
};

/// Verifies one tree by an AcceptanceRule. Implementations are stateless but for scratch memory.
class Verifier {
 public:
  virtual ~Verifier() = default;
  virtual std::string name() const = 0;
  /// `draft` holds D of every node with children, at row tree.candidate[node].
  virtual void judge(const TokenTree& tree, TargetSource& target, const DistributionTable& draft,
                     const StepKey& key, Verdict& verdict) = 0;
};

/// Recursive rejection over children in drawn order (DySpec Algorithm 3, SpecInfer), with the
/// residual carried as one scalar. Children must be drawn for AcceptanceRule::rejection.
std::unique_ptr<Verifier> make_rejection_verifier();
/// Follow the child that equals the target's argmax (temperature 0). Any tree is exact.
std::unique_ptr<Verifier> make_greedy_verifier();
/// The target's token is argmax of log T + shared Gumbel noise of its noise position;
/// follow the child that equals it. Any tree is exact.
/// `noise` must outlive the verifier; the ChildDrawer shares it.
std::unique_ptr<Verifier> make_coupled_verifier(NoiseCache& noise);

}  // namespace coppice
