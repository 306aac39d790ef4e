#include "verify/follow.h"
#include "verify/verifier.h"

namespace coppice {
namespace {

class GreedyVerifier final : public Verifier {
 public:
  std::string name() const override { return "greedy"; }

  void judge(const TokenTree& tree, TargetSource& target, const DistributionTable&, const StepKey&,
             Verdict& verdict) override {
    follow(
        tree, [&](std::int32_t node) { return target.argmax(node); }, verdict);
  }
};

}  // namespace

std::unique_ptr<Verifier> make_greedy_verifier() { return std::make_unique<GreedyVerifier>(); }

}  // namespace coppice
