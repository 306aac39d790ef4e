// The exact law of what speculation writes over small models, by enumeration.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "drafting/child_drawer-inl.h"
#include "drafting/grow.h"
#include "reference/enumeration.h"
#include "reference/table_draft.h"
#include "reference/tabular_model.h"
#include "verify/verifier.h"

namespace coppice::testing {

/// A model's distribution of the token after a path of tokens, [vocab], in the product's floats.
class PathRows {
 public:
  using Row = std::function<std::vector<float>(const TokenPath& path)>;
  PathRows(std::size_t vocab, Row row) : vocab_(vocab), row_(std::move(row)) {}
  std::size_t vocab() const { return vocab_; }
  const std::vector<float>& after(const TokenPath& path) {
    std::vector<float>& row = known_[path];
    if (row.empty()) row = row_(path);
    return row;
  }

 private:
  std::size_t vocab_;
  Row row_;
  std::map<TokenPath, std::vector<float>> known_;
};

/// How T and D are rounded.
enum class Rows {
  exact,      ///< to multiples of 2^-24, the largest changed so that they sum to 1 exactly
  as_served,  ///< as process_logits leaves them: their sums are 1 within float rounding
};

/// Rows of a model by table after the text (0, 0), processed as the product does, the repetition
/// penalty included.
PathRows rows_of(const TabularModel& model, const SamplingParams& params, Rows rows = Rows::exact);

struct ExactPair {
  std::string name;
  PathRows target, draft;
  bool by_parameters = false;  ///< rows follow from logits and sampling parameters
};
/// Pairs of at most 5 tokens: model_pairs() but the largest, and made ones (rows that no
/// parameters change): tails of probability 2^-40, ties, sizes that hang on one draw.
std::vector<ExactPair> exact_pairs(const SamplingParams& target_params = {1.0},
                                   const SamplingParams& draft_params = {1.0},
                                   Rows rows = Rows::exact);

/// What growth knows by earlier steps of a text. Every path of the enumeration is a text of its
/// own.
class Learning {
 public:
  virtual ~Learning() = default;
  virtual void begin_text() = 0;
  /// For planted faults: nothing is to be learned before a step has been judged.
  virtual void begin_step(const StepKey& /*key*/) {}
  virtual void record(const TokenTree& tree, std::span<const std::int32_t> path) = 0;
};

/// What is compared.
struct Compared {
  DraftPolicy& policy;
  Verifier& rule;
  LimitsRule limits;
  AcceptanceRule draw = AcceptanceRule::rejection;
  std::int32_t steps = 1;
  Learning* learning = nullptr;
};

struct LawError {
  double largest = 0.0;    ///< difference of a text's probability from the target's
  TokenPath at;            ///< that text
  double variation = 0.0;  ///< total variation of the two laws, of texts that the target finished
  double total = 0.0;      ///< of all probabilities, 1 but for rounding
  double accepted_length = 0.0;
  std::int32_t largest_tree = 0;
  std::int64_t paths = 0;
  bool address_shared = false;  ///< two decisions were taken by one number

  std::string text() const;
};

/// Compares what was written, each text with its probability, with the target's law. Texts differ
/// in length. Let every one be finished by the target: then all texts of every length must have
/// the target's law, exactly. (Necessary and sufficient for steps that follow each other with
/// numbers of their own: by induction over steps.)
LawError compare_exactly(const std::map<TokenPath, double>& written, PathRows& target);

/// D after what a text wrote, by whose rows a drawer draws children.
template <typename Drawer>
class DraftAfter final : public TextDraft {
 public:
  /// All outlive it; `text` may change between steps.
  DraftAfter(PathRows& rows, Drawer& drawer, const TokenPath& text)
      : rows_(rows), drawer_(drawer), text_(text) {}
  void evaluate(const TokenTree& candidates, std::span<const std::int32_t> nodes) override {
    for (const std::int32_t node : nodes) {
      TokenPath path = text_;
      const TokenPath below = path_to(candidates, node);
      path.insert(path.end(), below.begin(), below.end());
      const std::vector<float>& row = rows_.after(path);
      std::copy(row.begin(), row.end(), drawer_.prepare(node).begin());
      drawer_.ready(node);
    }
  }
  void exclude(std::int32_t node, TokenId token) override { drawer_.exclude(node, token); }
  std::optional<DrawnChild> child(const TokenTree& candidates, std::int32_t node,
                                  std::int32_t rank) override {
    return drawer_.child(candidates, node, rank);
  }
  double belief_of(const TokenTree& candidates, std::int32_t node, TokenId token) override {
    return drawer_.belief_of(candidates, node, token);
  }
  double expected_share(std::int32_t node) override { return drawer_.expected_share(node); }

 private:
  PathRows& rows_;
  Drawer& drawer_;
  const TokenPath& text_;
};

/// T after what a text wrote and a path of its tree.
class TargetAfter final : public TargetSource {
 public:
  TargetAfter(PathRows& rows, const TokenTree& tree, const TokenPath& text)
      : rows_(rows), tree_(tree), text_(text) {}
  std::span<const float> distribution(std::int32_t node) override {
    TokenPath path = text_;
    const TokenPath below = path_to(tree_, node);
    path.insert(path.end(), below.begin(), below.end());
    return rows_.after(path);
  }
  TokenId argmax(std::int32_t node) override {
    const std::span<const float> row = distribution(node);
    return static_cast<TokenId>(std::max_element(row.begin(), row.end()) - row.begin());
  }

 private:
  PathRows& rows_;
  const TokenTree& tree_;
  const TokenPath& text_;
};

/// The law of `speculation`. `drawer` is a BasicChildDrawer, or one with a planted fault, over
/// decisions by `enumeration`, and so is the rule if it decides anything.
template <typename Drawer>
LawError law_error(Enumeration& enumeration, ExactPair& pair, Drawer& drawer,
                   const Compared& speculation) {
  std::map<TokenPath, long double> sums;  // of up to a million paths each
  long double total = 0.0;
  double accepted = 0.0;
  std::int32_t largest_tree = 0;
  TokenPath text;
  TokenTree tree;
  Verdict verdict;
  DraftAfter draft(pair.draft, drawer, text);
  TargetAfter target(pair.target, tree, text);
  const std::int64_t paths_before = enumeration.paths();
  enumeration.each([&] {
    text.clear();
    std::int32_t last_accepted = 0;
    if (speculation.learning != nullptr) speculation.learning->begin_text();
    for (std::int32_t step = 0; step < speculation.steps; ++step) {
      const StepKey key{1, 2, static_cast<std::uint64_t>(step), text.size() + 2};
      tree.reset(text.empty() ? 0 : text.back());
      drawer.begin(key, speculation.draw);
      if (speculation.learning != nullptr) speculation.learning->begin_step(key);
      grow_tree(speculation.policy, draft, speculation.limits(step, last_accepted), tree);
      speculation.rule.judge(tree, target, drawer.distributions(), key, verdict);
      if (speculation.learning != nullptr) speculation.learning->record(tree, verdict.path);
      largest_tree = std::max(largest_tree, tree.size());
      // `target` looks at `text`: it is extended last.
      for (const std::int32_t node : verdict.path) {
        text.push_back(tree.token[static_cast<std::size_t>(node)]);
      }
      text.push_back(verdict.bonus);
      last_accepted = static_cast<std::int32_t>(verdict.path.size());
    }
    const double probability = enumeration.probability();
    sums[text] += static_cast<long double>(probability);
    total += static_cast<long double>(probability);
    accepted += probability * static_cast<double>(text.size()) / speculation.steps;
  });
  std::map<TokenPath, double> written;
  for (const auto& [of, sum] : sums) written[of] = static_cast<double>(sum);
  LawError error = compare_exactly(written, pair.target);
  error.total = static_cast<double>(total);
  error.accepted_length = accepted;
  error.largest_tree = largest_tree;
  error.paths = enumeration.paths() - paths_before;
  error.address_shared = enumeration.address_shared();
  return error;
}

}  // namespace coppice::testing
