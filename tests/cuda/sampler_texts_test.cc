// Batches of several texts against each text alone: bit for bit, since a row's kernels look at no
// other row.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>
#include <vector>

#include "base/error.h"
#include "base/random.h"
#include "cuda/sampler_rig.h"

namespace coppice::sampler_texts_test {
namespace {

constexpr std::int32_t vocab = 13, most_texts = 9, most_rows = 128;

std::size_t to_size(std::int64_t n) { return static_cast<std::size_t>(n); }

/// A text with a tree, of which every node has a row of draft and target.
struct Text {
  SamplingParams params;
  AcceptanceRule rule = AcceptanceRule::rejection;
  StepKey key;
  double belief_inverse_temperature = 0.0;
  TokenCounts counts;
  std::vector<TokenId> token;
  std::vector<std::int32_t> parent, depth, rank;
  std::vector<std::uint64_t> node_key;
  std::vector<float> draft, target;  ///< [nodes, vocab] logits

  std::int32_t nodes() const { return static_cast<std::int32_t>(token.size()); }
};

struct Result {
  struct Row {
    std::vector<TokenId> tokens;
    std::vector<float> probs, scores;
    bool operator==(const Row&) const = default;
  };
  std::vector<Row> rows;
  std::vector<std::int32_t> path;
  TokenId bonus = -1;
  bool operator==(const Result&) const = default;
};

class SamplerTexts : public testing::SamplerTest {
 protected:
  Text make_text(std::size_t index) {
    Text text;
    text.rule = static_cast<AcceptanceRule>(index % 3);
    text.params = {text.rule == AcceptanceRule::greedy ? 0.0
                                                       : 0.4 + 0.2 * static_cast<double>(index)};
    if (index % 2 == 0) text.params.repetition_penalty = 1.3 + 0.3 * static_cast<double>(index);
    if (index % 4 == 1) text.params.top_k = 7;
    if (index % 4 == 2) text.params.top_p = 0.8;
    text.key = {3, index, 5, 100 + index};
    text.belief_inverse_temperature = text.rule == AcceptanceRule::coupled ? 0.8 : 0.0;
    std::vector<std::int32_t> counts(vocab);
    for (std::int32_t& count : counts) count = static_cast<std::int32_t>(random_() % 2);
    text.counts = testing::counted(counts);
    const auto nodes = static_cast<std::int32_t>(1 + random_() % 12);
    std::vector<std::int32_t> children(to_size(nodes), 0);
    // Depth-first: a node's parent is on the path to the node before it.
    for (std::int32_t n = 0; n < nodes; ++n) {
      std::int32_t above = n - 1;
      while (above > 0 && random_() % 2 == 0) above = text.parent[to_size(above)];
      text.parent.push_back(above);
      text.rank.push_back(n == 0 ? 0 : children[to_size(above)]++);
      text.depth.push_back(n == 0 ? 0 : text.depth[to_size(above)] + 1);
      text.node_key.push_back(
          n == 0 ? root_node_key : child_node_key(text.node_key[to_size(above)], text.rank.back()));
      // Siblings have tokens of their own.
      text.token.push_back(static_cast<TokenId>((index * 5 + to_size(text.rank.back())) % vocab));
    }
    for (std::vector<float>* logits : {&text.draft, &text.target}) {
      for (std::int32_t n = 0; n < nodes; ++n) {
        const auto row = testing::random_logits(random_, vocab, 0);
        logits->insert(logits->end(), row.begin(), row.end());
      }
    }
    return text;
  }

  static SamplingParams warm(SamplingParams params) {
    params.temperature = std::max(params.temperature, 0.5);
    return params;
  }

  /// Children of all rows, then the verdicts, in one batch each.
  std::vector<Result> run(cuda::CudaSampler& sampler, const std::vector<const Text*>& texts) {
    std::vector<Result> results(texts.size());
    std::vector<PenaltyText> penalties(texts.size());
    std::vector<DrawText> draws;
    std::vector<DrawRow> rows;
    std::vector<JudgeText> judges;
    std::deque<testing::ListedTree> trees;
    std::vector<std::int32_t> text_of_row;
    std::vector<float> draft_logits, target_logits;
    for (std::size_t t = 0; t < texts.size(); ++t) {
      const Text& text = *texts[t];
      penalties[t] = {&text.counts, text.token, text.parent};
      draws.push_back(
          {text.key, warm(text.params), text.rule, text.belief_inverse_temperature, &penalties[t]});
      std::vector<std::int32_t> store;
      for (std::int32_t n = 0; n < text.nodes(); ++n) {
        const auto row = static_cast<std::int32_t>(rows.size());
        rows.push_back({most_rows - 1 - row, n, text.depth[to_size(n)], text.node_key[to_size(n)],
                        static_cast<std::int32_t>(t)});
        store.push_back(rows.back().store);
        text_of_row.push_back(static_cast<std::int32_t>(t));
      }
      trees.emplace_back(text.token, text.parent, text.depth, text.rank, store);
      judges.push_back(trees.back().judged({text.key, text.params, text.rule, &penalties[t]}));
      draft_logits.insert(draft_logits.end(), text.draft.begin(), text.draft.end());
      target_logits.insert(target_logits.end(), text.target.begin(), text.target.end());
    }
    sampler.stage_draw({draws, rows});
    transfers_->send();
    const testing::GuardedArray<float> draft(draft_logits), target(target_logits);
    const auto count = static_cast<std::int32_t>(rows.size());
    sampler.draw(draft.data(), vocab, count);
    std::vector<DrawnChildren> drawn(rows.size());
    sampler.collect_draw(drawn);
    for (std::size_t r = 0; r < rows.size(); ++r) {
      Result::Row row;
      for (const DeviceChild& child : drawn[r].list) {
        row.tokens.push_back(child.token);
        row.probs.push_back(child.prob);
      }
      row.scores.assign(drawn[r].scores.begin(), drawn[r].scores.end());
      results[to_size(text_of_row[r])].rows.push_back(row);
    }
    sampler.stage_judge(judges);
    transfers_->send();
    sampler.judge(target.data(), count);
    std::vector<DeviceVerdict> verdicts(texts.size());
    sampler.collect_verdicts(verdicts);
    std::int32_t first = 0;
    for (std::size_t t = 0; t < texts.size(); ++t) {
      for (const std::int32_t row : verdicts[t].rows) results[t].path.push_back(row - first);
      results[t].bonus = verdicts[t].bonus;
      first += texts[t]->nodes();
    }
    return results;
  }

  /// How many of the texts come out otherwise together than alone, over many batches.
  int differences(DeviceFault fault, int batches) {
    const auto together = make_sampler(vocab, vocab, most_rows, most_rows, most_texts);
    const auto alone = make_sampler(vocab, vocab, most_rows, most_rows);
    together->plant(fault);
    int differ = 0;
    accepted_ = 0;
    for (int batch = 0; batch < batches; ++batch) {
      std::vector<Text> texts;
      std::vector<const Text*> pointers;
      for (std::size_t t = 0; t < 1 + to_size(batch) % most_texts; ++t) {
        texts.push_back(make_text(t));
      }
      for (const Text& text : texts) pointers.push_back(&text);
      const auto results = run(*together, pointers);
      for (std::size_t t = 0; t < texts.size(); ++t) {
        differ += results[t] == run(*alone, {&texts[t]}).front() ? 0 : 1;
        accepted_ += results[t].path.empty() ? 0 : 1;
      }
    }
    return differ;
  }

  std::mt19937_64 random_{11};
  int accepted_ = 0;
};

TEST_F(SamplerTexts, AreWhatEachIsAlone) {
  EXPECT_EQ(differences(DeviceFault::none, 90), 0);
  EXPECT_GT(accepted_, 50) << "paths of several trees are compared";
}

// What the test above must notice.
TEST_F(SamplerTexts, FaultsAreNoticed) {
  for (const DeviceFault fault :
       {DeviceFault::neighbours_parameters, DeviceFault::neighbours_counts,
        DeviceFault::neighbours_noise, DeviceFault::verdict_walks_on}) {
    EXPECT_GT(differences(fault, 27), 5) << static_cast<int>(fault);
  }
}

TEST_F(SamplerTexts, RefusesWhatDoesNotFit) {
  const auto sampler = make_sampler(vocab, vocab, 8, 8, 2);
  const std::vector<TokenId> token = {1};
  const std::vector<std::int32_t> zero = {0}, none = {-1};
  const testing::ListedTree root(token, none, zero, zero, none);
  std::vector<JudgeText> texts(3, root.judged({}));
  EXPECT_THROW(sampler->stage_judge(texts), Error) << "three trees where two fit";
  texts.pop_back();
  EXPECT_NO_THROW(sampler->stage_judge(texts));
  const std::vector<DrawText> draws(1);
  const std::vector<DrawRow> rows = {{0, 0, 0, 1, 1}};
  EXPECT_THROW(sampler->stage_draw({draws, rows}), Error) << "a row of text 1 of 1";
}

}  // namespace
}  // namespace coppice::sampler_texts_test
