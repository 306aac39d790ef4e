#include "reference/tabular_model.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "kernels/logits.h"
#include "reference/naive_logits.h"

namespace coppice::testing {
namespace {

constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

// Row of the context whose last two tokens are these.
std::size_t row_of(std::int32_t vocab, TokenId previous, TokenId last) {
  return (static_cast<std::size_t>(previous) * static_cast<std::size_t>(vocab) +
          static_cast<std::size_t>(last)) *
         static_cast<std::size_t>(vocab);
}

// The token before the last one of the path to `node`, and the last.
std::pair<TokenId, TokenId> context(const TokenTree& tree, std::int32_t node, TokenId before_root) {
  const auto i = static_cast<std::size_t>(node);
  const std::int32_t parent = tree.parent[i];
  return {parent < 0 ? before_root : tree.token[static_cast<std::size_t>(parent)], tree.token[i]};
}

}  // namespace

std::vector<float> TabularModel::distributions(const SamplingParams& params) const {
  const auto width = static_cast<std::size_t>(vocab);
  std::vector<float> rows(logits.size());
  LogitsScratch scratch;
  for (std::size_t i = 0; i < logits.size(); i += width) {
    process_logits(std::span(logits).subspan(i, width), params, nullptr, scratch,
                   std::span(rows).subspan(i, width));
  }
  return rows;
}

std::vector<double> TabularModel::exact(const SamplingParams& params) const {
  const auto width = static_cast<std::size_t>(vocab);
  std::vector<double> rows;
  for (std::size_t i = 0; i < logits.size(); i += width) {
    const std::vector<double> row = naive_process(std::span(logits).subspan(i, width), params);
    rows.insert(rows.end(), row.begin(), row.end());
  }
  return rows;
}

std::vector<ModelPair> model_pairs() {
  std::mt19937_64 random(20240607);
  std::normal_distribution<float> normal;
  // logit(token, in which context) for every context.
  const auto table = [](std::int32_t vocab, const auto& logit) {
    TabularModel model;
    model.vocab = vocab;
    for (std::int32_t context = 0; context < vocab * vocab; ++context) {
      for (std::int32_t token = 0; token < vocab; ++token) {
        model.logits.push_back(logit(context, token));
      }
    }
    return model;
  };
  const auto random_table = [&](std::int32_t vocab, float spread) {
    return table(vocab, [&](std::int32_t, std::int32_t) { return spread * normal(random); });
  };
  // Depends on the last token alone.
  const auto first_order = [&](std::int32_t vocab, float spread) {
    std::vector<float> logits;
    for (std::int32_t i = 0; i < vocab * vocab; ++i) logits.push_back(spread * normal(random));
    return table(vocab, [&](std::int32_t context, std::int32_t token) {
      return logits[static_cast<std::size_t>(context % vocab * vocab + token)];
    });
  };
  const auto without = [&](TabularModel model, const auto& removed) {
    for (std::size_t i = 0; i < model.logits.size(); ++i) {
      const auto token = static_cast<std::int32_t>(i) % model.vocab;
      const auto context = static_cast<std::int32_t>(i) / model.vocab;
      if (removed(context, token)) model.logits[i] = minus_infinity;
    }
    return model;
  };
  const auto perturbed = [&](TabularModel model, float by) {
    for (float& logit : model.logits) logit += by * normal(random);
    return model;
  };
  const auto one_hot = [&](std::int32_t vocab) {
    return table(vocab, [&](std::int32_t context, std::int32_t token) {
      return (context * 5 + 1) % vocab == token ? 0.0f : minus_infinity;
    });
  };

  std::vector<ModelPair> pairs;
  pairs.push_back({"random, 4 tokens", first_order(4, 1.0f), first_order(4, 1.0f)});
  pairs.push_back({"random, 3 tokens", random_table(3, 1.5f), random_table(3, 1.0f)});
  pairs.push_back({"random, 8 tokens", random_table(8, 1.5f), random_table(8, 1.5f)});
  const TabularModel base = random_table(5, 1.5f);
  pairs.push_back({"good draft", base, perturbed(base, 0.7f)});
  pairs.push_back({"nearly equal", base, perturbed(base, 0.01f)});
  pairs.push_back({"equal but for rounding", base, perturbed(base, 2e-7f)});
  pairs.push_back({"equal", base, base});
  pairs.push_back({"uniform draft", random_table(4, 1.5f), random_table(4, 0.0f)});
  pairs.push_back({"uniform target", random_table(4, 0.0f), random_table(4, 1.5f)});
  pairs.push_back({"disjoint support",
                   without(random_table(4, 1.0f), [](auto, auto token) { return token >= 2; }),
                   without(random_table(4, 1.0f), [](auto, auto token) { return token < 2; })});
  pairs.push_back({"one-hot draft", random_table(4, 1.0f), one_hot(4)});
  pairs.push_back({"one-hot target", one_hot(4), random_table(4, 1.0f)});
  pairs.push_back({"draft 0 where the target is not", random_table(5, 1.0f),
                   without(random_table(5, 1.0f),
                           [](auto context, auto token) { return token == context % 5; })});
  pairs.push_back(
      {"target 0 where the draft is not",
       without(random_table(5, 1.0f),
               [](auto context, auto token) { return token == context % 5 || token == 2; }),
       random_table(5, 1.0f)});
  pairs.push_back({"peaked draft", random_table(4, 1.0f), random_table(4, 4.0f)});
  return pairs;
}

std::vector<double> law_of_three(const TabularModel& target, const SamplingParams& params) {
  const std::vector<double> rows = target.exact(params);
  const std::int32_t vocab = target.vocab;
  std::vector<double> law;
  for (std::int32_t a = 0; a < vocab; ++a) {
    for (std::int32_t b = 0; b < vocab; ++b) {
      for (std::int32_t c = 0; c < vocab; ++c) {
        law.push_back(rows[row_of(vocab, 0, 0) + static_cast<std::size_t>(a)] *
                      rows[row_of(vocab, 0, a) + static_cast<std::size_t>(b)] *
                      rows[row_of(vocab, a, b) + static_cast<std::size_t>(c)]);
      }
    }
  }
  return law;
}

class TabularGenerator::Source final : public TextDraft {
 public:
  Source(const std::vector<float>& rows, std::int32_t vocab, NoiseCache& noise)
      : rows_(rows), vocab_(vocab), drawer_(vocab, noise) {}
  void begin(const StepKey& key, AcceptanceRule draw, TokenId before_root) {
    drawer_.begin(key, draw);
    before_root_ = before_root;
  }
  void evaluate(const TokenTree& candidates, std::span<const std::int32_t> nodes) override {
    for (const std::int32_t node : nodes) {
      const auto [previous, last] = context(candidates, node, before_root_);
      std::copy_n(rows_.data() + row_of(vocab_, previous, last), vocab_,
                  drawer_.prepare(node).begin());
      drawer_.ready(node);
    }
  }
  std::optional<DrawnChild> child(const TokenTree& candidates, std::int32_t node,
                                  std::int32_t rank) override {
    return drawer_.child(candidates, node, rank);
  }
  const DistributionTable& distributions() const { return drawer_.distributions(); }

 private:
  const std::vector<float>& rows_;
  std::int32_t vocab_;
  ChildDrawer drawer_;
  TokenId before_root_ = 0;
};

class TabularGenerator::Target final : public TargetSource {
 public:
  Target(const std::vector<float>& rows, std::int32_t vocab) : rows_(rows), vocab_(vocab) {}
  void begin(const TokenTree& tree, TokenId before_root) {
    tree_ = &tree;
    before_root_ = before_root;
  }
  std::span<const float> distribution(std::int32_t node) override {
    const auto [previous, last] = context(*tree_, node, before_root_);
    return {rows_.data() + row_of(vocab_, previous, last), static_cast<std::size_t>(vocab_)};
  }
  TokenId argmax(std::int32_t node) override {
    const auto row = distribution(node);
    return static_cast<TokenId>(std::max_element(row.begin(), row.end()) - row.begin());
  }

 private:
  const std::vector<float>& rows_;
  std::int32_t vocab_;
  const TokenTree* tree_ = nullptr;
  TokenId before_root_ = 0;
};

TabularGenerator::TabularGenerator(const ModelPair& pair, const Setting& setting)
    : vocab_(pair.target.vocab),
      setting_(setting),
      target_rows_(pair.target.distributions(setting.target_params)),
      draft_rows_(pair.draft.distributions(setting.draft_params)),
      noise_(std::make_unique<NoiseCache>(vocab_)),
      source_(std::make_unique<Source>(draft_rows_, vocab_, *noise_)),
      target_(std::make_unique<Target>(target_rows_, vocab_)) {}

TabularGenerator::~TabularGenerator() = default;

NoiseCache& TabularGenerator::noise() { return *noise_; }

std::vector<TokenId> TabularGenerator::generate(DraftPolicy& policy, Verifier& rule,
                                                std::uint64_t seed, std::uint64_t sequence,
                                                std::int32_t length) {
  std::vector<TokenId> text{0, 0};
  const auto wanted = static_cast<std::size_t>(length) + 2;
  std::int32_t last_accepted = 0;
  for (std::int32_t step = 0; text.size() < wanted; ++step) {
    const StepKey key{seed, sequence, static_cast<std::uint64_t>(step), text.size()};
    const TokenId before_root = text[text.size() - 2];
    tree_.reset(text.back());
    source_->begin(key, setting_.draw, before_root);
    grow_tree(policy, *source_, setting_.limits(step, last_accepted), tree_);
    target_->begin(tree_, before_root);
    rule.judge(tree_, *target_, source_->distributions(), key, verdict_);
    for (const std::int32_t node : verdict_.path) {
      text.push_back(tree_.token[static_cast<std::size_t>(node)]);
    }
    text.push_back(verdict_.bonus);
    last_accepted = static_cast<std::int32_t>(verdict_.path.size());
    ++steps_;
    tokens_ += last_accepted + 1;
  }
  return {text.begin() + 2, text.begin() + static_cast<std::ptrdiff_t>(wanted)};
}

std::vector<std::int64_t> TabularGenerator::count_threes(DraftPolicy& policy, Verifier& rule,
                                                         std::uint64_t seed, std::int64_t texts) {
  const auto vocab = static_cast<std::size_t>(vocab_);
  std::vector<std::int64_t> counts(vocab * vocab * vocab, 0);
  for (std::int64_t i = 0; i < texts; ++i) {
    const std::vector<TokenId> text =
        generate(policy, rule, seed, static_cast<std::uint64_t>(i), 3);
    std::size_t cell = 0;
    for (const TokenId token : text) cell = cell * vocab + static_cast<std::size_t>(token);
    ++counts[cell];
  }
  return counts;
}

double TabularGenerator::accepted_length() const {
  return steps_ == 0 ? 0.0 : static_cast<double>(tokens_) / static_cast<double>(steps_);
}

}  // namespace coppice::testing
