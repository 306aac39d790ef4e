// What shares the passes of a step: what its texts usually bring into it, and what they did.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "sizing/constants.h"

namespace coppice {

class PassCosts;

/// What further draft passes would bring a text, or several: by what each of them is priced at.
struct DraftDemand {
  /// Draft passes of a step that are told apart; later ones are like the last of them.
  static constexpr std::size_t passes = 32;
  /// Prices that are told apart: a pass shared by 1 text, by 2, by 4 and so on.
  static constexpr std::size_t crowds = 8;
  static constexpr std::int32_t crowd(std::size_t index) { return std::int32_t{1} << index; }
  using ByPass = std::array<double, passes>;
  using ByCrowd = std::array<double, crowds>;
  using Table = std::array<std::array<float, passes>, crowds>;

  Table comes = {};  ///< how often it takes part at that price
  Table gains = {};  ///< what this brings, in the draft's seconds, its rows of the target paid

  /// One step, in which the passes were worth that many seconds.
  void record(const ByPass& worth, const ByCrowd& turns, double left);
  void add(const DraftDemand& other, double share);
};

/// What a text's speculative steps have been of late.
class UsualStep {
 public:
  using ByPass = DraftDemand::ByPass;

  /// After a step that speculated.
  void record(std::int32_t nodes, double tokens, std::int64_t draft_passes);
  /// Of the same step: what passes were worth, and what a text's part of one cost by crowd.
  void record_demand(const ByPass& worth, const DraftDemand::ByCrowd& turns);
  /// Whether there was one.
  bool known() const { return weight_ > 0.0; }
  double nodes() const { return known() ? nodes_ / weight_ : 0.0; }
  double tokens() const { return known() ? tokens_ / weight_ : 1.0; }
  /// The chance that the text takes part in a draft pass; 1 where nothing is known.
  double drafts(std::size_t pass) const { return known() ? drafts_[pass] / weight_ : 1.0; }

 private:
  friend struct Company;
  double weight_ = 0.0, nodes_ = 0.0, tokens_ = 0.0;
  ByPass drafts_{};
  double demand_weight_ = 0.0;
  DraftDemand demand_;
};

/// The texts of a step before it, by which automatic sizes are priced: sums of what each has done
/// in earlier steps, so that prices are functions of the past. Made anew for every step. First all
/// numbers that are known of it are set, then its texts join.
struct Company {
  /// One text of so many tokens.
  static Company alone(std::int32_t length) {
    Company one;
    one.texts = 1;
    one.kv_tokens = length;
    return one;
  }
  /// `of_a_chain`: tokens that a short chain may be expected to bring the text.
  void join_adapting(const UsualStep& usual, double won, double of_a_chain);
  void join_waiting() { ++waiting; }
  void join_given(const UsualStep& usual);
  /// Prices draft passes. One costs about the same for a text and for all, so it may pay if all
  /// come whom its rows alone would pay, and yet never be begun if each has to pay for as much of
  /// it as those have left who came in the past. So a part's price is the one at which all texts
  /// together gain most: what those who then come gain, less the pass as often as anybody comes.
  /// Where these would be too few it is left to the past: rows are priced as if all moved together.
  void settle(const PassCosts& draft);

  std::int64_t step = 0;         ///< number of the engine's step
  std::int32_t texts = 0;        ///< a row each
  std::int32_t prompt_rows = 0;  ///< of other texts' prompts, in the same target pass
  std::int64_t kv_tokens = 0;    ///< of all texts

  std::int32_t adapting = 0;   ///< texts that may speculate, with automatic sizes
  std::int32_t waiting = 0;    ///< those that have given it up for now
  std::int32_t given = 0;      ///< texts that speculate otherwise
  double won = 0.0;            ///< tokens of adapting texts against plain decoding, of late
  UsualStep::ByPass drafts{};  ///< texts that took part of late, by draft pass
  // When they have settled:
  DraftDemand::ByCrowd turns{};  ///< seconds: a text's part of a pass over a row of each, by crowd
  std::array<std::int32_t, DraftDemand::passes>
      sharing{};  ///< texts that share a pass, by its price; 0: left to the past

  /// Tokens of a text, on average.
  std::int32_t length() const { return static_cast<std::int32_t>(kv_tokens / texts); }
  /// Nodes of one automatic tree, on average, and of all; those who are new are taken for average.
  double nodes_each() const { return known_ > 0 ? nodes_ / known_ : 0.0; }
  double nodes() const { return nodes_each() * adapting; }
  double given_nodes() const { return given_nodes_; }
  /// Tokens of all texts in a step.
  double tokens() const;
  /// That a short chain may be expected to bring an adapting text, on average.
  double tokens_of_a_chain() const { return of_a_chain_ / std::max(1, adapting); }
  /// Whether any adapting text has speculated.
  bool known() const { return known_ > 0; }

 private:
  std::int32_t known_ = 0;
  double nodes_ = 0.0, tokens_ = 0.0;  ///< of these
  double of_a_chain_ = 0.0;
  double given_nodes_ = 0.0, given_tokens_ = 0.0;
  UsualStep::ByPass come_anyway_{};  ///< the chance that a text of a given size takes part
  DraftDemand demand_;
  double asking_ = 0.0;  ///< texts that it is of
};

/// What a step did.
struct StepWork {
  /// A step of one text.
  static StepWork alone(std::int32_t nodes, std::int64_t passes, std::int32_t length) {
    StepWork work;
    work.add(nodes, passes, length);
    return work;
  }
  /// One of its texts, of `length` tokens before it, which took part in so many draft passes; 0 if
  /// it was plain.
  void add(std::int32_t its_nodes, std::int64_t its_passes, std::int32_t length);

  std::int32_t texts = 0;
  std::int32_t nodes = 0;        ///< of all trees
  std::int32_t drafting = 0;     ///< texts that grew a tree
  std::int32_t prompt_rows = 0;  ///< of other texts' prompts, in the same target pass
  std::int64_t passes = 0;       ///< of the draft
  std::int64_t turns = 0;        ///< texts in each of these, summed
  std::int64_t kv_tokens = 0;    ///< of all texts, before the step

  /// Of the target's pass; of a draft pass, on average; and the texts in one.
  std::int32_t rows() const { return texts + nodes + prompt_rows; }
  std::int32_t draft_rows() const { return by_pass(nodes); }
  std::int32_t draft_texts() const { return by_pass(turns); }

 private:
  std::int32_t by_pass(std::int64_t of_all) const {
    return static_cast<std::int32_t>(
        std::max<std::int64_t>(1, of_all / std::max<std::int64_t>(1, passes)));
  }
};

}  // namespace coppice
