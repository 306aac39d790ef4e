// Drafts without a model: what followed where the text's end stood before.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/token_tree.h"
#include "drafting/answer_index.h"
#include "drafting/online_logistic.h"
#include "drafting/proposer.h"
#include "drafting/suffix_index.h"

namespace coppice {

/// Chance that a looked-up token is the target's, learned from those that were judged: by the
/// length of the match, by how many of its occurrences were followed by this token, and by whether
/// a more frequent follower was refused before.
class LookupCalibration {
 public:
  LookupCalibration();
  /// What is known of a proposal, as a class of its own.
  static std::size_t class_of(std::int32_t length, double share, bool first);
  double chance(std::size_t of) const;
  void observe(std::size_t of, bool accepted);
  /// The same where a draft was asked, too, and believes in the token with `belief`.
  double chance_beside(double chance, double belief) const {
    return beside_.chance(features(chance, belief));
  }
  void observe_beside(double chance, double belief, bool accepted) {
    beside_.observe(features(chance, belief), accepted);
  }
  /// Starts from what `others` have learned.
  void expect(const LookupCalibration& others);
  /// After a text: takes over what it has learned beyond its start, and lets older texts fade.
  void add(const LookupCalibration& text);

 private:
  static constexpr std::size_t lengths = 6;
  struct Count {
    double accepted = 0.0, seen = 0.0;
  };
  static OnlineLogistic::Coefficients features(double chance, double belief);

  std::array<Count, 4 * lengths> counts_{}, started_{};
  OnlineLogistic beside_;
};

/// The index of one text, which outlives a LookupProposer: a later turn of the text goes on with
/// it. Like SuffixIndex it takes about 300 bytes a token, of 131,072 tokens at most.
class TextIndex {
 public:
  /// Before a turn's first step: begins anew unless the text begins with the tokens that are here.
  void begin(std::span<const TokenId> tokens);
  /// Takes over the tokens that the text has gained.
  void follow(std::span<const TokenId> tokens);
  const SuffixIndex& index() const { return index_; }
  /// Tokens appended in all, those of what it began anew for twice.
  std::int64_t appended() const { return appended_; }

 private:
  SuffixIndex index_;
  std::int64_t appended_ = 0;
  std::int32_t followed_ = 0;  ///< tokens of the text; below 0: memory ran out meanwhile
};

/// Proposes what followed earlier occurrences of the last tokens: in the text itself, prompt and
/// answer, and in other texts, where there are any. The longer match comes first; among followers
/// of one match the most frequent.
class LookupProposer final : public Proposer {
 public:
  /// `others`: what earlier texts wrote, or null; it outlives this, is told what was of use, and
  /// does not change while a tree grows. `own`: of the text, or null: it has one of its own.
  explicit LookupProposer(AnswerIndex* others = nullptr, TextIndex* own = nullptr)
      : others_(others),
        made_(own == nullptr ? std::make_unique<TextIndex>() : nullptr),
        own_(own == nullptr ? made_.get() : own) {}

  /// Takes over the tokens that the text has gained; between trees. `tokens` is the whole text.
  void follow(std::span<const TokenId> tokens);
  void begin() override;
  std::optional<Proposal> next(const TokenTree& candidates, std::int32_t node,
                               TokenId but) override;
  double chance_beside(std::int32_t node, TokenId token, double chance, double belief) override;
  /// Learns from a judged tree and its accepted nodes.
  void record(const TokenTree& tree, std::span<const std::int32_t> path);

  LookupCalibration& calibration() { return calibration_; }
  const LookupCalibration& calibration() const { return calibration_; }

 private:
  /// What a node's path matches.
  struct Node {
    SuffixIndex::Match own, others;
    bool known = false;
  };
  struct Proposed {
    std::int32_t node;
    TokenId token;
    std::size_t number;       ///< of its class
    std::int32_t place = -1;  ///< in `others_`, if it is from there
    double belief = -1.0;     ///< the draft's, if it was asked
  };

  Proposed* find(std::int32_t node, TokenId token);
  const Node& node(const TokenTree& candidates, std::int32_t node);

  AnswerIndex* others_;
  std::int64_t version_ = 0;  ///< of `others_`, when it was last looked at
  std::unique_ptr<TextIndex> made_;
  TextIndex* own_;
  SuffixIndex::Match end_of_others_;  ///< of the whole text
  std::int32_t followed_ = 0;         ///< tokens of the text
  LookupCalibration calibration_;
  std::vector<Node> nodes_;  ///< by candidate
  std::vector<Proposed> proposed_;
};

}  // namespace coppice
