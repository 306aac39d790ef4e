// Texts with automatic sizes that share the passes of a machine of planted costs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "drafting/grow.h"
#include "drafting/policy.h"
#include "sizing/batch_sizer.h"
#include "sizing/draft_start_policy.h"
#include "sizing/sequence_sizer.h"

namespace coppice::testing {

/// A draft that knows how often its children are accepted: each with a chance that is drawn around
/// a mean, or never, whatever it says.
class ToldDraft final : public TextDraft {
 public:
  struct Kind {
    double acceptance = 0.7, spread = 0.0;
    bool useless = false;
  };
  ToldDraft(const Kind& kind, std::uint32_t seed) : kind_(kind), random_(seed) {}

  using TextDraft::evaluate;
  void evaluate(const TokenTree&, std::span<const std::int32_t> nodes) override {
    for (const std::int32_t node : nodes) {
      if (at(node) >= nodes_.size()) nodes_.resize(at(node) + 1);
      const double off = kind_.spread * (2.0 * unit() - 1.0);
      nodes_[at(node)] = {std::clamp(kind_.acceptance + off, 0.01, 0.99), 1.0};
    }
  }
  std::optional<DrawnChild> child(const TokenTree&, std::int32_t node, std::int32_t) override {
    auto& [share, left] = nodes_[at(node)];
    const double prob = share * left;
    left -= prob;
    return DrawnChild{++token_, static_cast<float>(prob)};
  }
  double expected_share(std::int32_t node) override { return nodes_[at(node)].first; }

  /// Tokens that a tree is expected to bring, the bonus token not counted.
  double expected(const TokenTree& tree) const {
    double tokens = 0.0;
    for (std::size_t n = 1; n < tree.path_prob.size(); ++n) tokens += tree.path_prob[n];
    return kind_.useless ? 0.0 : tokens;
  }
  std::vector<std::int32_t> judge(const TokenTree& tree) {
    std::vector<std::int32_t> path;
    if (kind_.useless) return path;
    std::int32_t parent = 0;
    double left = 1.0;
    for (std::int32_t n = 1; n < tree.nodes(); ++n) {  // siblings come in order, before children
      if (tree.parent[at(n)] != parent) continue;
      const double share = static_cast<double>(tree.draft_prob[at(n)]) / left;
      left -= static_cast<double>(tree.draft_prob[at(n)]);
      if (unit() >= share) continue;
      path.push_back(parent = n);
      left = 1.0;
    }
    return path;
  }
  /// Before another tree.
  void forget() { nodes_.clear(); }

 private:
  static std::size_t at(std::int32_t node) { return static_cast<std::size_t>(node); }
  double unit() { return static_cast<double>(random_()) / 4294967296.0; }

  Kind kind_;
  std::mt19937 random_;
  std::vector<std::pair<double, double>> nodes_;  ///< each child's share of the rest, and the rest
  TokenId token_ = 0;
};

/// Which policy grows.
enum class Grown { trees, chains };

struct SharingText {
  SharingText(const CostTable& believed, CostCorrection* correction, const ToldDraft::Kind& kind,
              Grown grown, std::uint32_t seed)
      : size(believed, correction, AcceptanceRule::rejection, 64),
        draft(kind, seed),
        policy(grown == Grown::trees ? make_dyspec_policy({&size.calibration(), &size.prices()})
                                     : make_chain_policy({&size.calibration(), &size.prices()})) {
    size.begin_text(1.0);
  }
  SequenceSizer size;
  ToldDraft draft;
  std::unique_ptr<DraftPolicy> policy;
  TokenTree tree;
  std::vector<std::int32_t> path;
  std::int64_t passes = 0;
  bool speculates = false;
  double tokens = 0.0, nodes = 0.0;  ///< since it began; expected ones
  // For a text that is to end:
  DraftStartPolicy::Begin begin = DraftStartPolicy::Begin::now;
  int probed = 0;               ///< steps as a probe, and one
  int missing = 0, left = 512;  ///< tokens that its draft has not seen, and that it has to write
};

/// How texts that share a step grow.
enum class Growing { together, apart };

/// Time is what the machine's own table says.
class SharedMachine {
 public:
  static constexpr std::int32_t length = 50;  ///< of every text
  static constexpr int most_rows = 512;       ///< of a pass

  /// `correction`: hears of the clock; may be null.
  SharedMachine(const CostTable& truth, const CostTable& believed, CostCorrection* correction,
                Growing growing = Growing::together)
      : truth_(truth),
        believed_(believed),
        correction_(correction),
        growing_(growing),
        sizes_(believed, correction) {}

  /// Sets the seed of the texts that are made from now on.
  void set_seed(std::uint32_t seed) { seed_ = seed; }
  void add(int count, const ToldDraft::Kind& kind, Grown grown = Grown::trees) {
    for (int i = 0; i < count; ++i) texts_.push_back(make(kind, grown));
  }
  std::unique_ptr<SharingText> make(const ToldDraft::Kind& kind, Grown grown = Grown::trees) {
    return std::make_unique<SharingText>(believed_, correction_, kind, grown, ++seed_);
  }
  std::vector<std::unique_ptr<SharingText>>& texts() { return texts_; }

  /// Expected tokens per second of so many steps. `between` is called after each.
  double run(int steps, const std::function<void()>& between = {}) {
    double seconds = 0.0, tokens = 0.0;
    for (auto& text : texts_) text->tokens = text->nodes = 0.0;
    for (int i = 0; i < steps; ++i) {
      seconds += step();
      for (auto& text : texts_) {
        const double gained = 1.0 + text->draft.expected(text->tree);
        tokens += gained;
        text->tokens += gained;
        text->nodes += text->tree.size();
      }
      if (between) between();
    }
    return tokens / seconds;
  }
  /// Plain decoding's seconds over those of this many texts of so many tokens, side by side, that
  /// have gone through the target. `draft_start`: says when drafts begin; null: all at once.
  double answers(int count, const ToldDraft::Kind& kind, int prompt, int tokens,
                 DraftStartPolicy* draft_start) {
    draft_start_ = draft_start;
    texts_.clear();
    add(count, kind);
    for (auto& text : texts_) {
      text->begin = DraftStartPolicy::Begin::later;
      text->missing = prompt;
      text->left = tokens;
    }
    const double plainly = tokens * count / plain();
    double seconds = 0.0;
    while (!texts_.empty()) {
      seconds += begin_drafts() + step();
      for (auto& text : texts_) text->left -= 1 + static_cast<int>(text->path.size());
      std::erase_if(texts_, [](const auto& text) { return text->left <= 0; });
    }
    draft_start_ = nullptr;
    return plainly / seconds;
  }
  double plain() const {
    StepWork work;
    for (std::size_t i = 0; i < texts_.size(); ++i) work.add(0, 0, length);
    return work.texts / truth_.target_seconds(work);
  }

 private:
  static constexpr int probe_rows = 32;

  double begin_drafts() {
    DraftStartPolicy::Batch batch;
    batch.step = step_;
    for (const auto& text : texts_) {
      ++batch.texts;
      batch.kv_tokens += length;
      batch.tokens_left += text->left;
      batch.missing_rows += text->missing;
      if (text->begin == DraftStartPolicy::Begin::as_probe) ++batch.probes;
    }
    int rows = 0;
    for (auto& text : texts_) {
      if (text->begin != DraftStartPolicy::Begin::later) continue;
      text->begin = DraftStartPolicy::Begin::now;
      if (draft_start_ != nullptr) {
        text->begin =
            draft_start_->decide(batch,
                                 {text->left, static_cast<double>(text->missing),
                                  text->probed > 0 ? 0 : std::min(probe_rows, text->missing)},
                                 believed_, correction_);
      }
      if (text->begin == DraftStartPolicy::Begin::later) continue;
      const bool probe = text->begin == DraftStartPolicy::Begin::as_probe;
      if (probe) {
        ++batch.probes;
        text->probed = 1;
      }
      rows += probe ? std::min(probe_rows, text->missing) : text->missing;
      text->missing = 0;
    }
    return rows == 0 ? 0.0 : DraftStartPolicy::prefill_seconds(truth_, rows, length);
  }

  /// The draft's passes over all trees.
  class Passes final : public DraftPasses {
   public:
    void evaluate(std::span<const GrowingText> growing) override {
      std::int32_t& all = rows.emplace_back(0);
      for (std::size_t i = 0; i < growing.size(); ++i) {
        const std::span<const std::int32_t> frontier = growing[i].frontier();
        if (frontier.empty()) continue;
        texts[i]->draft.evaluate(growing[i].policy.growth().candidates, frontier);
        all += static_cast<std::int32_t>(frontier.size());
        ++texts[i]->passes;
      }
    }
    std::vector<SharingText*> texts;
    std::vector<std::int32_t> rows;  ///< by pass
  };

  static bool begun(const SharingText& text) {
    return text.begin != DraftStartPolicy::Begin::later;
  }

  double step() {
    StepPrices::Step step;
    step.number = step_++;
    step.texts = static_cast<std::int32_t>(texts_.size());
    step.kv_tokens = std::int64_t{length} * step.texts;
    Passes passes;
    std::vector<GrowingText> growing;
    const auto grows = [&](SharingText& text, const GrowthLimits& limits) {
      text.speculates = true;
      growing.push_back({*text.policy, text.draft, limits, text.tree, nullptr});
      passes.texts.push_back(&text);
    };
    std::vector<BatchSizer::Text> joint;
    for (auto& text : texts_) {
      text->tree.reset(0);
      text->path.clear();
      text->passes = 0;
      text->speculates = false;
      if (!begun(*text)) continue;
      if (step.texts > 1) text->size.expect(acceptance().acceptance());
      BatchSizer::Text& joined = joint.emplace_back();
      joined.size = &text->size;
      joined.prior = *text->policy->prior({});
      joined.tokens_left = text->left;
      joined.apart = step.texts == 1 || growing_ == Growing::apart;
      joined.probes = text->begin == DraftStartPolicy::Begin::as_probe;
    }
    sizes_.begin(step, joint, most_rows - step.texts);
    auto joined = joint.begin();
    for (auto& text : texts_) {
      if (joint.empty() || !begun(*text)) continue;
      GrowthLimits limits;
      if (!joined->apart) limits.common = &sizes_.growth();
      limits.weight = joined->apart ? 1.0 : joined->prior.weight;
      if (joined++->speculates) grows(*text, limits);
    }
    grow_trees(growing, passes, &sizes_.growth());
    return account(passes);
  }

  double account(const Passes& passes) {
    StepWork work;
    double tokens = 0.0;
    for (auto& text : texts_) {
      if (text->speculates) text->path = text->draft.judge(text->tree);
      tokens += 1.0 + static_cast<double>(text->path.size());
      work.add(text->tree.size(), text->passes, length);
    }
    StepSeconds took;
    took.verify = truth_.target_seconds(work);
    if (work.passes > 0) {
      took.first_draft = took.draft = truth_.first_draft_seconds(work);
      for (std::size_t k = 1; k < passes.rows.size(); ++k) {
        took.draft += truth_.draft.seconds(passes.rows[k], length);
      }
      took.drawing = CostTable::host_seconds(work);
    }
    if (correction_ != nullptr) correction_->observe_step(believed_, work, took);
    if (work.texts > 1) sizes_.record(work, tokens);
    for (auto& text : texts_) learn(*text, work);
    return took.verify + took.draft + took.drawing;
  }

  DraftStartPolicy& acceptance() {
    return draft_start_ != nullptr ? *draft_start_ : own_draft_start_;
  }

  void learn(SharingText& text, const StepWork& work) {
    double won = 0.0, cost = 1.0;
    if (text.speculates) {
      cost = text.size.record(text.tree, text.path, work);
      won = 1.0 + static_cast<double>(text.path.size()) - cost;
      acceptance().record(text.tree, text.path);
    } else if (begun(text)) {
      text.size.record_plain();
    }
    text.draft.forget();
    if (draft_start_ == nullptr) return;
    if (!begun(text)) draft_start_->record_put_off(work.texts);
    if (text.begin == DraftStartPolicy::Begin::now)
      draft_start_->record_gain(work.texts, won, cost);
    const bool probes = text.begin == DraftStartPolicy::Begin::as_probe;
    if (probes && text.speculates) ++text.probed;
    if (probes && (text.size.waits() || text.probed > SizingConstants::known_steps)) {
      text.begin = DraftStartPolicy::Begin::later;
      text.missing = 1;
    }
  }

  const CostTable& truth_;
  const CostTable& believed_;
  CostCorrection* correction_;
  Growing growing_;
  BatchSizer sizes_;
  DraftStartPolicy own_draft_start_{AcceptanceRule::rejection};
  DraftStartPolicy* draft_start_ = nullptr;
  std::vector<std::unique_ptr<SharingText>> texts_;
  std::int64_t step_ = 0;
  std::uint32_t seed_ = 0;
};

}  // namespace coppice::testing
