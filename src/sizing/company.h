// What shares the passes of a step: what its texts usually bring into it, and what they did.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace coppice {

/// What a text's speculative steps have been of late.
class UsualStep {
 public:
  /// Draft passes of a step that are told apart; later ones are like the last of them.
  static constexpr std::size_t passes = 32;
  using ByPass = std::array<double, passes>;

  /// After a step that speculated.
  void record(std::int32_t nodes, double tokens, std::int64_t draft_passes);
  /// Whether there was one.
  bool known() const { return weight_ > 0.0; }
  double nodes() const { return known() ? nodes_ / weight_ : 0.0; }
  double tokens() const { return known() ? tokens_ / weight_ : 1.0; }
  /// The chance that the text takes part in a draft pass; 1 where nothing is known.
  double drafts(std::size_t pass) const { return known() ? drafts_[pass] / weight_ : 1.0; }

 private:
  double weight_ = 0.0, nodes_ = 0.0, tokens_ = 0.0;
  ByPass drafts_{};
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
  void join_adapting(const UsualStep& usual, double won);
  void join_waiting() { ++waiting; }
  void join_given(const UsualStep& usual);

  std::int64_t step = 0;         ///< number of the engine's step
  std::int32_t texts = 0;        ///< a row each
  std::int32_t prompt_rows = 0;  ///< of other texts' prompts, in the same target pass
  std::int64_t kv_tokens = 0;    ///< of all texts

  std::int32_t adapting = 0;   ///< texts that may speculate, with automatic sizes
  std::int32_t waiting = 0;    ///< those that have given it up for now
  std::int32_t given = 0;      ///< texts that speculate otherwise
  double won = 0.0;            ///< tokens of adapting texts against plain decoding, of late
  UsualStep::ByPass drafts{};  ///< texts, by draft pass

  /// Tokens of a text, on average.
  std::int32_t length() const { return static_cast<std::int32_t>(kv_tokens / texts); }
  /// Nodes of one automatic tree, on average, and of all; those who are new are taken for average.
  double nodes_each() const { return known_ > 0 ? nodes_ / known_ : 0.0; }
  double nodes() const { return nodes_each() * adapting; }
  double given_nodes() const { return given_nodes_; }
  /// Tokens of all texts in a step.
  double tokens() const;
  /// Whether any adapting text has speculated.
  bool known() const { return known_ > 0; }

 private:
  std::int32_t known_ = 0;
  double nodes_ = 0.0, tokens_ = 0.0;  ///< of these
  double given_nodes_ = 0.0, given_tokens_ = 0.0;
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
