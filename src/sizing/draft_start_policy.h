// Whether a text among others should have its draft begin: by what earlier texts have shown.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/token_tree.h"
#include "base/types.h"
#include "drafting/calibration.h"
#include "sizing/cost_correction.h"
#include "sizing/cost_table.h"

namespace coppice {

/// Before a text can speculate, its prompt has to go through the draft as well: a cost that few
/// tokens never earn back where a batch leaves speculation little to win. So among others a text
/// decodes plainly until its draft may be expected to pay. For one model pair, policy, way of
/// drawing and temperature; not for several threads at a time.
///
/// What to expect. With n texts that all grow chains of k tokens, a step brings more than a plain
/// one and costs more: by how often first children were accepted of late, and by the costs of n
/// texts. The best k counts. What texts have in fact won among about as many others comes to
/// outweigh it.
///
/// How it finds out. Where acceptance is not known and the draft is dear, probes go first: one text
/// in a few, whose draft sees the end of the text alone. Where speculation is not expected to pay,
/// a probe is sent when what it may lose is little beside the tokens since the last one; never
/// where even a draft that is nearly always right would not pay. Nobody waits for a probe.
///
/// Decisions are functions of earlier steps, of costs and of the clock: never of noise that is
/// still to be drawn. At temperature 0 and under coupled acceptance no token depends on them.
class DraftStartPolicy {
 public:
  explicit DraftStartPolicy(AcceptanceRule draw);

  /// The texts that could take the step at hand.
  struct Batch {
    std::int64_t step = 0;  ///< a number of its own
    std::int32_t texts = 0;
    std::int32_t probes = 0;  ///< of these
    /// Tokens that drafts have not seen which could begin; what texts share counts once.
    std::int64_t missing_rows = 0;
    std::int64_t kv_tokens = 0;    ///< of all texts
    std::int64_t tokens_left = 0;  ///< that all texts may still write
  };
  struct Text {
    std::int32_t tokens_left = 0;
    /// Its part of these: of what several texts share, an equal one.
    double missing_rows = 0.0;
    std::int32_t probe_rows = 0;  ///< that a probe's draft would see; 0: it was one
  };
  enum class Begin { later, as_probe, now };
  /// What the text's draft is to do before the step. `correction`: null if sizes are not to follow
  /// the clock.
  Begin decide(const Batch& batch, const Text& text, const CostTable& costs,
               const CostCorrection* correction);

  /// After a step in which a text speculated, alone or among others.
  void record(const TokenTree& tree, std::span<const std::int32_t> path);
  /// What these steps have shown of the draft's children: what is usual for a text among others.
  const AcceptanceCalibration& acceptance() const { return acceptance_; }
  /// After a prefill that found the draft useless.
  void record_useless();
  /// After each step of a text whose draft has begun, but not as a probe: tokens won against plain
  /// decoding, and its time in plain steps.
  void record_gain(std::int32_t texts, double won, double cost);
  /// After each step of a text whose draft was put off.
  void record_put_off(std::int32_t texts);
  /// What passes over prompts took by the clock, and by prefill_seconds().
  void record_prefill(double seconds, double by_table);
  /// One pass of the draft over so many rows, of prompts of so many tokens on average.
  static double prefill_seconds(const CostTable& costs, double rows, double tokens) {
    return costs.draft.seconds(rows, 1, static_cast<std::int64_t>(0.5 * tokens));
  }

 private:
  static constexpr std::size_t depths = 4;  ///< 1, 2, 3, deeper
  static std::size_t class_of_depth(std::int32_t depth);
  struct Count {
    double accepted = 0.0, judged = 0.0;
  };
  struct Gain {
    double won = 0.0, cost = 0.0;
  };

  /// That a first child is accepted, this many standard deviations below what is expected.
  double chance(std::int32_t depth, double below) const;
  Gain& faded_gain(std::int32_t texts);
  void look(const Batch& batch, const CostTable& costs, const CostCorrection* correction);

  std::array<double, depths> usual_;
  std::array<Count, depths> first_children_{};
  AcceptanceCalibration acceptance_;
  double steps_ = 0.0;               ///< that told of acceptance
  std::array<Gain, 12> gains_{};     ///< by the logarithm of the number of texts
  double tokens_since_probe_ = 0.0;  ///< of texts that were put off
  double prefill_seconds_ = 0.0, prefill_by_table_ = 0.0;
  // About the batch at hand:
  std::int64_t looked_at_ = -1;
  /// Tokens won for each plain one: expected, less a deviation of the chances, and at best.
  double expected_ = 0.0, cautious_ = 0.0, at_best_ = 0.0;
  double plain_share_ = 0.0;  ///< seconds of a plain step, by its texts
};

}  // namespace coppice
