// Automatic sizes of the texts of a step, at common prices where there are several.
#pragma once

#include <cstdint>
#include <vector>

#include "drafting/batch_growth.h"
#include "drafting/policy.h"
#include "sizing/sequence_sizer.h"
#include "sizing/step_prices.h"
#include "sizing/step_work.h"

namespace coppice {

/// Maximises the tokens of a step over its seconds, all texts together: one heap holds all
/// positions (drafting/batch_growth.h), at prices of the whole step (step_prices.h) and at the
/// rate at which the batch has written of late. Texts are told apart by what their tokens are
/// worth to the batch: those that are slow, or behind, would stay in it longest. A text by itself
/// has its own prices and rate (SequenceSizer).
class BatchSizer {
 public:
  BatchSizer(const CostTable& costs, CostCorrection* correction)
      : costs_{costs, correction}, prices_(costs_, {.follows_rows = true}), growth_(prices_) {}

  /// A text that has sizes of its own to find.
  struct Text {
    SequenceSizer* size;
    GrowthPrior prior;  ///< of its tree; begin() adds what its tokens are worth
    std::int32_t tokens_left;
    /// It must not grow together with the others, or cannot: its prices are its own, as if all did
    /// what it does.
    bool apart = false;
    bool probes = false;         ///< it is to find out, whether it is expected to pay or not
    bool without_draft = false;  ///< it may have a tree without the draft
    bool speculates = false;     ///< set by begin()
  };
  /// Before a step: fixes prices, and says whose trees grow, those that grow together with at most
  /// `most` nodes in all. Returns how many they may have. A step of one text has it grow apart.
  std::int32_t begin(const StepPrices::Step& step, std::vector<Text>& texts, std::int32_t most);
  /// Where they then grow.
  BatchGrowth& growth() { return growth_; }
  /// After a step of several texts, which brought so many tokens.
  void record(const StepWork& work, double tokens);

 private:
  std::int32_t begin_growth(const StepPrices::Step& step, std::int32_t most, bool optimistic);
  void weigh(std::vector<Text>& texts) const;

  ClockedCosts costs_;
  StepPrices prices_;  ///< their rate is that of a text in the steps of about as many
  BatchGrowth growth_;
  std::int32_t met_ = 1;          ///< texts that the rate was learned among
  bool speculated_ = false;       ///< some text did in the last step
  double progress_ = 0.0;         ///< tokens of a text of all steps, on average
  std::int32_t usual_nodes_ = 0;  ///< of all trees, or more
  std::vector<GrowthPrior> priors_;
  std::vector<char> chosen_;
};

}  // namespace coppice
