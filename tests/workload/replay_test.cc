// Trees written again on an engine: lengths are the template's, and nothing is left behind.
#include "workload/replay.h"

#include <gtest/gtest.h>

#include "engine/pair.h"
#include "reference/files.h"
#include "workload/motion.h"
#include "workload/templates.h"

namespace coppice::workload {
namespace {

using testing::error_of;

class ReplayTest : public ::testing::Test {
 protected:
  Engine load(std::int32_t kv_tokens = 0) const {
    EngineOptions options = pair_.options();
    options.max_sequences = 8;
    options.kv_tokens = kv_tokens;
    return Engine::load(options);
  }
  static TreeTemplate small() {
    TreeTemplate tree;
    tree.name = "small";
    tree.nodes = {{-1, 90, -89, 0}, {0, 10, 1, 10},  {0, 16, 1, 16}, {0, 0, 1, 0},
                  {2, 8, 17, 24},   {2, 12, 19, 30}, {3, 5, 3, 7}};
    return tree;
  }
  static ReplaySettings settings() {
    ReplaySettings settings;
    settings.options.sampling.temperature = 1.0;
    settings.options.speculation = Plain{};
    return settings;
  }

  testing::TinyPair pair_;
};

TEST_F(ReplayTest, WritesEveryBranchForItsIterations) {
  Engine engine = load();
  const TreeTemplate tree = small();
  const Reads reads = reads_of(tree);
  for (const bool sharing : {true, false}) {
    ReplaySettings asked = settings();
    asked.sharing = sharing;
    std::int64_t heard = 0;
    asked.progress = [&](std::int64_t tokens) {
      EXPECT_GE(tokens, heard);
      heard = tokens;
    };
    ReplayReport report;
    const auto prompt = prompt_of_length(engine, "", tree.prompt_tokens(), 1);
    replay(engine, tree, prompt, asked, report);
    EXPECT_TRUE(report.finished);
    EXPECT_EQ(report.trees, 1);
    EXPECT_EQ(report.generated, reads.generated);
    EXPECT_EQ(heard, reads.generated);
    // Plain: a token a pass. What is shared is computed before; copies compute all as they begin.
    EXPECT_EQ(report.passes, reads.iterations + (sharing ? 1 : 0));
    EXPECT_EQ(report.forks, 6);
    EXPECT_EQ(report.prunes, 6);
    // A text's last token has no KV until it goes on; a step's rows have some before.
    const std::int64_t live = sharing ? reads.peak_by_tree : reads.peak_per_query;
    EXPECT_GE(report.peak_kv, live - reads.most_branches);
    EXPECT_LE(report.peak_kv, live + live / 20 + 16 * reads.most_branches);
    EXPECT_EQ(report.read_by_tree < report.read_by_text, sharing);
    // The prompt once; where branches begin and go on, the last tokens are computed anew. Copies
    // compute all.
    const std::int64_t computed = report.prompt_tokens - report.cached_tokens;
    if (sharing) {
      EXPECT_GE(computed, tree.prompt_tokens());
      EXPECT_LT(computed, 2 * tree.prompt_tokens());
    } else {
      EXPECT_GE(computed, 5 * tree.prompt_tokens());
    }
    EXPECT_GT(report.seconds.prefill, 0.0);
    EXPECT_GT(report.seconds.verify, 0.0);
    EXPECT_GE(report.seconds.total, report.seconds.verify + report.seconds.prefill);
  }
}

TEST_F(ReplayTest, SpeculationShortensPassesNotTexts) {
  Engine engine = load();
  const TreeTemplate tree = few_shot(12, 3, 31);
  ReplaySettings asked = settings();
  asked.options.speculation = Chain{4};
  asked.options.sampling.temperature = 0.5;
  ReplayReport report;
  replay(engine, tree, prompt_of_length(engine, "", 12, 1), asked, report);
  EXPECT_EQ(report.generated, 90);
  EXPECT_LT(report.passes, 30);
  EXPECT_GT(report.seconds.draft, 0.0);
}

// Not all of them have room to their ends.
TEST_F(ReplayTest, CountsPassesOfBranchesThatWaitForMemory) {
  Engine engine = load(256);
  const TreeTemplate tree = few_shot(12, 6, 61);
  ReplayReport report;
  replay(engine, tree, prompt_of_length(engine, "", 12, 1), settings(), report);
  EXPECT_EQ(report.generated, 360);
  EXPECT_GT(report.passes, reads_of(tree).iterations + 1);
  EXPECT_LE(report.passes, 360 + 1);
}

TEST_F(ReplayTest, StopsWhereItIsAskedTo) {
  Engine engine = load();
  const TreeTemplate tree = small();
  std::stop_source stop;
  ReplaySettings asked = settings();
  asked.stop = stop.get_token();
  asked.progress = [&](std::int64_t tokens) {
    if (tokens >= 25) stop.request_stop();
  };
  ReplayReport report;
  replay(engine, tree, prompt_of_length(engine, "", tree.prompt_tokens(), 1), asked, report);
  EXPECT_FALSE(report.finished);
  EXPECT_EQ(report.trees, 0);
  EXPECT_GE(report.generated, 25);
  EXPECT_LT(report.generated, reads_of(tree).generated);
}

TEST_F(ReplayTest, SaysWhatDoesNotFit) {
  Engine engine = load(64);
  EXPECT_NE(error_of([&] { require_context(engine, few_shot(100000, 1, 2), 1); }, ErrorKind::usage)
                .find("few-shot with 1 branches: its longest branch has 100001 tokens"),
            std::string::npos);
  require_context(engine, few_shot(10, 1, 10), 1);
  // What the remedy says suffices, however much the tree is shrunk already.
  const TreeTemplate whole = few_shot(3333, 2, 1001);
  for (const std::int64_t divisor : {1, 2, 3}) {
    const std::string told = error_of(
        [&] { require_context(engine, shrunk(whole, divisor), divisor); }, ErrorKind::usage);
    const std::size_t at = told.find("--shrink ");
    ASSERT_NE(at, std::string::npos) << told;
    require_context(engine, shrunk(whole, std::stoll(told.substr(at + 9))), 1);
  }
  ReplayReport report;
  EXPECT_NE(error_of([&] {
              replay(engine, few_shot(16, 1, 100), prompt_of_length(engine, "", 16, 1), settings(),
                     report);
            }).find("ended early (memory); give more --kv-tokens"),
            std::string::npos);
}

TEST_F(ReplayTest, PromptsHaveTheLengthAskedFor) {
  Engine engine = load();
  const auto prompt = prompt_of_length(engine, "a text", 50, 7);
  EXPECT_EQ(prompt.size(), 50u);
  EXPECT_EQ(prompt, prompt_of_length(engine, "a text", 50, 7));
  for (const TokenId token : prompt) EXPECT_LT(token, engine.vocab_size());
  EXPECT_NE(prompt_of_length(engine, "", 50, 7), prompt_of_length(engine, "", 50, 8));
}

}  // namespace
}  // namespace coppice::workload
