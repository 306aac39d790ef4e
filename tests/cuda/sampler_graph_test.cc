// Drawing, judging and scoring recorded once and played back for other batches.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <vector>

#include "cuda/sampler_rig.h"

namespace coppice::sampler_graph_test {
namespace {

using testing::GuardedArray;
using testing::random_logits;

constexpr std::int32_t vocab = 9001;
constexpr std::int32_t most_rows = 8;

class SamplerGraph : public testing::SamplerTest {
 protected:
  void SetUp() override {
    SamplerTest::SetUp();
    if (IsSkipped()) return;
    recorded_ = make_sampler(vocab, vocab, most_rows, most_rows);
    direct_ = make_sampler(vocab, vocab, most_rows, most_rows);
  }

  void TearDown() override {
    recorded_.reset();  // before the stream that they wait for
    direct_.reset();
    SamplerTest::TearDown();
  }

  class Recording {
   public:
    Recording(cudaStream_t stream, const std::function<void()>& body) : stream_(stream) {
      cuda::check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
      body();
      cudaGraph_t graph = nullptr;
      cuda::check(cudaStreamEndCapture(stream, &graph), "capture");
      cuda::check(cudaGraphInstantiate(&executable_, graph, 0), "instantiation");
      cuda::check(cudaGraphDestroy(graph), "destruction of a graph");
    }
    Recording(const Recording&) = delete;
    Recording& operator=(const Recording&) = delete;
    ~Recording() { (void)cudaGraphExecDestroy(executable_); }
    void play() const { cuda::check(cudaGraphLaunch(executable_, stream_), "graph launch"); }

   private:
    cudaStream_t stream_;
    cudaGraphExec_t executable_ = nullptr;
  };

  std::vector<float> rows_of_logits() {
    std::vector<float> all;
    for (std::int32_t r = 0; r < most_rows; ++r) {
      const auto row = random_logits(random_, vocab, 0);
      all.insert(all.end(), row.begin(), row.end());
    }
    return all;
  }

  SamplingParams some_params(int i) {
    const SamplingParams all[] = {{0.7}, {1.0, 50}, {0.9, 0, 0.9, 0.001, 1.2}, {1.2, 300, 0.95}};
    return all[i % 4];
  }

  std::mt19937_64 random_{5};
  std::unique_ptr<cuda::CudaSampler> recorded_, direct_;
};

TEST_F(SamplerGraph, DrawsAndJudgesOtherBatches) {
  GuardedArray<float> draft(static_cast<std::size_t>(most_rows) * vocab);
  GuardedArray<float> target(static_cast<std::size_t>(most_rows) * vocab);
  TokenCounts counts(vocab);
  for (int i = 0; i < 500; ++i) counts.add(static_cast<TokenId>(random_() % vocab));
  std::unique_ptr<Recording> drawing, judging;
  for (int i = 0; i < 12; ++i) {
    const auto rule = static_cast<AcceptanceRule>(i % 3);
    // The root and as many children as there are rows to it, which is never the same.
    const std::int32_t nodes = 2 + i % (most_rows - 1);
    testing::OneDraw batch;
    batch.key = {7, 8, static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(3 * i)};
    batch.params = some_params(i);
    batch.rule = rule;
    if (rule != AcceptanceRule::rejection) batch.belief_inverse_temperature = 0.6 * (i % 4);
    std::vector<DrawRow> rows;
    std::vector<TokenId> token(static_cast<std::size_t>(nodes), 17);
    std::vector<std::int32_t> parent{-1}, depth{0}, rank{0}, store{0};
    for (std::int32_t n = 0; n < nodes; ++n) {
      rows.push_back({n, n, n == 0 ? 0 : 1, static_cast<std::uint64_t>(n) + 1});
      if (n == 0) continue;
      token[static_cast<std::size_t>(n)] = 100 + n;
      parent.push_back(0);
      depth.push_back(1);
      rank.push_back(n - 1);
      store.push_back(-1);
    }
    const PenaltyText text{&counts, token, parent};
    batch.rows = rows;
    batch.penalty = &text;
    draft.upload(rows_of_logits());
    const auto expected = draw(*direct_, batch, draft.data(), vocab);
    recorded_->stage_draw(batch.batch());
    transfers_->send();
    if (!drawing) {
      drawing = std::make_unique<Recording>(
          stream_, [&] { recorded_->draw(draft.data(), vocab, most_rows); });
    }
    drawing->play();
    std::vector<DrawnChildren> drawn(rows.size()), unrecorded(rows.size());
    recorded_->collect_draw(drawn);
    direct_->collect_draw(unrecorded);
    for (std::size_t r = 0; r < rows.size(); ++r) {
      EXPECT_TRUE(std::ranges::equal(drawn[r].scores, unrecorded[r].scores));
      EXPECT_EQ(drawn[r].scores.empty(), batch.belief_inverse_temperature == 0.0);
      EXPECT_EQ(drawn[r].moments.sum > 0.0, batch.belief_inverse_temperature > 0.0);
      EXPECT_EQ(drawn[r].moments.sum, unrecorded[r].moments.sum);
      EXPECT_EQ(drawn[r].moments.mean, unrecorded[r].moments.mean);
      EXPECT_EQ(drawn[r].moments.variance, unrecorded[r].moments.variance);
      const std::span<const DeviceChild> list = drawn[r].list;
      ASSERT_EQ(list.size(), expected[r].size());
      for (std::size_t k = 0; k < list.size(); ++k) {
        ASSERT_EQ(list[k].token, expected[r][k].token);
        ASSERT_EQ(list[k].prob, expected[r][k].prob);
      }
    }

    for (std::size_t n = 1; n < token.size(); ++n) token[n] = expected[0][n - 1].token;
    testing::OneTree tree;
    tree.key = batch.key;
    tree.params = batch.params;
    if (rule == AcceptanceRule::greedy) tree.params.temperature = 0.0;
    tree.rule = rule;
    tree.token = token;
    tree.parent = parent;
    tree.depth = depth;
    tree.rank = rank;
    tree.store = store;
    tree.penalty = &text;
    const std::vector<float> logits = rows_of_logits();
    DeviceVerdict wanted, verdict;
    target.upload(logits);
    stage_judge(*direct_, tree);
    transfers_->send();
    direct_->judge(target.data(), nodes);
    direct_->collect_verdicts({&wanted, 1});
    target.upload(logits);  // a penalty is applied in place
    stage_judge(*recorded_, tree);
    transfers_->send();
    if (!judging) {
      judging =
          std::make_unique<Recording>(stream_, [&] { recorded_->judge(target.data(), most_rows); });
    }
    judging->play();
    recorded_->collect_verdicts({&verdict, 1});
    ASSERT_EQ(verdict.rows, wanted.rows) << i;
    ASSERT_EQ(verdict.bonus, wanted.bonus) << i;
  }
  EXPECT_TRUE(draft.guards_intact());
  EXPECT_TRUE(target.guards_intact());
}

TEST_F(SamplerGraph, ScoresOtherRows) {
  GuardedArray<float> logits(static_cast<std::size_t>(most_rows) * vocab);
  std::unique_ptr<Recording> scoring;
  for (int i = 0; i < 8; ++i) {
    std::vector<TokenId> next(1 + static_cast<std::size_t>(i) % most_rows);
    for (TokenId& token : next) token = static_cast<TokenId>(random_() % vocab);
    logits.upload(rows_of_logits());
    const auto count = static_cast<std::int32_t>(next.size());
    std::vector<float> expected(next.size()), scores(next.size());
    direct_->stage_score(next, some_params(i));
    transfers_->send();
    direct_->score(logits.data(), vocab, count);
    direct_->collect_scores(expected);
    recorded_->stage_score(next, some_params(i));
    transfers_->send();
    if (!scoring) {
      scoring = std::make_unique<Recording>(
          stream_, [&] { recorded_->score(logits.data(), vocab, most_rows); });
    }
    scoring->play();
    recorded_->collect_scores(scores);
    EXPECT_EQ(scores, expected) << i;
  }
}

// Staged twice before anything runs: the first batch's copy is not overtaken by the second.
TEST_F(SamplerGraph, StagingTwiceKeepsTheLater) {
  const GuardedArray<float> logits(random_logits(random_, vocab, 0));
  for (int i = 0; i < 50; ++i) {
    std::vector<TokenId> first(most_rows), second(most_rows);
    for (TokenId& token : first) token = static_cast<TokenId>(random_() % vocab);
    for (TokenId& token : second) token = static_cast<TokenId>(random_() % vocab);
    std::vector<float> scores(most_rows);
    recorded_->stage_score(first, {0.7});
    transfers_->send();
    recorded_->score(logits.data(), 0, most_rows);
    recorded_->stage_score(second, {0.7});
    transfers_->send();
    recorded_->score(logits.data(), 0, most_rows);
    recorded_->collect_scores(scores);
    EXPECT_EQ(scores, score(*direct_, second, {0.7}, logits.data(), most_rows));
  }
}

}  // namespace
}  // namespace coppice::sampler_graph_test
