#include "kernels/logits.h"
#include "kernels/noise.h"
#include "verify/follow.h"
#include "verify/verifier.h"

namespace coppice {
namespace {

// The noise of a position is fixed before anything is drafted, and the token chosen there does
// not depend on the tree: the output is that of plain sampling with the same noise.
class CoupledVerifier final : public Verifier {
 public:
  explicit CoupledVerifier(NoiseCache& noise) : noise_(noise) {}
  std::string name() const override { return "coupled"; }

  void judge(const TokenTree& tree, TargetSource& target, const DistributionTable&,
             const StepKey& key, Verdict& verdict) override {
    std::uint64_t depth = 0;
    follow(
        tree,
        [&](std::int32_t node) {
          return argmax_product(target.distribution(node),
                                noise_.row(key.seed, key.sequence, key.noise_position(depth++)));
        },
        verdict);
  }

 private:
  NoiseCache& noise_;
};

}  // namespace

std::unique_ptr<Verifier> make_coupled_verifier(NoiseCache& noise) {
  return std::make_unique<CoupledVerifier>(noise);
}

}  // namespace coppice
