// A step allocates nothing once its like has been seen.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "drafting/calibration.h"
#include "drafting/child_drawer.h"
#include "drafting/expand_rerank.h"
#include "drafting/grow.h"
#include "drafting/specinfer.h"
#include "drafting/static_tree.h"
#include "kernels/logits.h"
#include "reference/allocation_count.h"

namespace coppice {
namespace {

using testing::allocations;

class LogitsSource final : public TextDraft {
 public:
  static constexpr std::int64_t vocab = 3000;
  LogitsSource() : noise_(vocab), drawer_(vocab, noise_), logits_(vocab) {}
  void begin(const StepKey& key, AcceptanceRule draw) {
    // The rows of a step's positions are shared noise: kept, or computed in place.
    drawer_.begin(key, draw);
  }
  void evaluate(const TokenTree& candidates, std::span<const std::int32_t> nodes) override {
    for (const std::int32_t node : nodes) {
      const auto token = static_cast<double>(candidates.token[static_cast<std::size_t>(node)]);
      for (std::size_t i = 0; i < logits_.size(); ++i) {
        logits_[i] = static_cast<float>(4.0 * std::sin((token + 1.0) * static_cast<double>(i)));
      }
      process_logits(logits_, params, nullptr, scratch_, drawer_.prepare(node));
      drawer_.ready(node);
    }
  }
  std::optional<DrawnChild> child(const TokenTree& candidates, std::int32_t node,
                                  std::int32_t rank) override {
    return drawer_.child(candidates, node, rank);
  }
  SamplingParams params{0.7};

 private:
  NoiseCache noise_;
  ChildDrawer drawer_;
  LogitsScratch scratch_;
  std::vector<float> logits_;
};

std::unique_ptr<DraftPolicy> make_static() {
  return make_static_policy(TreeShape(std::vector<RankPath>{{0}, {1}, {2}, {0, 0}, {1, 0}}));
}
std::unique_ptr<DraftPolicy> make_specinfer() {
  return make_specinfer_policy({1, 1, 3, 1, 1, 1, 1, 1});
}
std::unique_ptr<DraftPolicy> make_expand_rerank() {
  return make_expand_rerank_policy({5, 4}, AcceptanceRule::greedy);
}

const AcceptanceCalibration& calibration() {
  static const AcceptanceCalibration learned = [] {
    AcceptanceCalibration calibration;
    for (int i = 0; i < 40; ++i) calibration.observe(i % 3, 1 + i % 5, 0.02 * i, i % 2 == 0);
    calibration.update();
    return calibration;
  }();
  return learned;
}
std::unique_ptr<DraftPolicy> make_calibrated() { return make_dyspec_policy({&calibration()}); }
std::unique_ptr<DraftPolicy> make_looking_ahead() {
  return make_dyspec_policy({&calibration(), nullptr, true});
}
std::unique_ptr<DraftPolicy> make_chain() { return make_chain_policy(); }
std::unique_ptr<DraftPolicy> make_plain() { return make_dyspec_policy(); }

TEST(Allocation, NoneAfterWarmUp) {
  LogitsSource source;
  TokenTree tree;
  tree.reserve(65);
  GrowthLimits limits;
  limits.max_size = 40;
  limits.min_value = 1e-3;
  for (auto make : {make_plain, make_chain, make_static, make_specinfer, make_expand_rerank,
                    make_calibrated, make_looking_ahead}) {
    const auto policy = make();
    for (const AcceptanceRule draw :
         {AcceptanceRule::rejection, AcceptanceRule::greedy, AcceptanceRule::coupled}) {
      for (const SamplingParams& params : {SamplingParams{0.7}, SamplingParams{0.7, 30, 0.95, 0.01},
                                           SamplingParams{0.7, 0, 0.9}}) {
        source.params = params;
        std::int64_t before = 0;
        for (int pass = 0; pass < 2; ++pass) {
          before = allocations;
          for (std::uint64_t step = 0; step < 5; ++step) {
            tree.reset(static_cast<TokenId>(step));
            source.begin({1, 1, step, 10 + step}, draw);
            grow_tree(*policy, source, limits, tree);
          }
        }
        EXPECT_EQ(allocations, before) << policy->name();
      }
    }
  }
}

}  // namespace
}  // namespace coppice
