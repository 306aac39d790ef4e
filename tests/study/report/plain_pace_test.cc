// What plain decoding's own speeds tell of the machine, from made-up times.
#include "study/report/plain_pace.h"

#include <gtest/gtest.h>

#include <functional>

#include "reference/files.h"
#include "reference/tiny_model.h"

namespace coppice::study {
namespace {

/// Seconds a pass of the prompt at that place, in that round.
using Seconds = std::function<double(std::size_t prompt, std::int32_t round)>;

/// The pace of plain decoding that writes 20 tokens after each of nine prompts of these lengths.
PlainPace pace_of(std::int32_t rounds, const std::vector<std::int32_t>& lengths,
                  const Seconds& seconds) {
  const testing::TemporaryFolder folder;
  StudyPlan plan;
  plan.cells = {Cell{}};
  plan.rounds = rounds;
  std::vector<std::string> ids;
  for (std::size_t p = 0; p < lengths.size(); ++p) {
    ids.push_back(cat("p", p));
    plan.prompts.push_back({ids.back(), "a"});
  }
  Results results(folder.path() / "results.jsonl", plan, Access::append);
  for (std::int32_t round = 0; round < rounds; ++round) {
    for (std::size_t p = 0; p < lengths.size(); ++p) {
      Result one;
      one.cell = Cell{}.key();
      one.prompt = ids[p];
      one.round = round;
      one.run = "2026-01-01T00:00:00Z 1";
      one.turns = {{lengths[p], 0, std::vector<TokenId>(20, 5), "", "length"}};
      one.tree_sizes.assign(20, 0);
      one.accepted.assign(20, 0);
      one.kept.assign(20, 1);
      one.seconds.verify = 20.0 * seconds(p, round);
      results.add(std::move(one));
    }
  }
  return plain_pace(results, ids);
}

const std::vector<std::int32_t> even(9, 50);

TEST(PlainPace, AQuietMachineIsNotCalledNoisy) {
  const PlainPace pace = pace_of(1, even, [](std::size_t, std::int32_t) { return 0.01; });
  EXPECT_NEAR(pace.slowest, 100.0, 1e-9);
  EXPECT_NEAR(pace.fastest, 100.0, 1e-9);
  EXPECT_EQ(noise_sentence(pace, "This machine"), "");
  // Longer contexts take longer, though they stand together.
  const std::vector<std::int32_t> ascending = {10, 20, 30, 400, 500, 600, 900, 1000, 1100};
  const PlainPace longer = pace_of(
      1, ascending, [&](std::size_t p, std::int32_t) { return 0.01 + 1e-5 * (ascending[p] + 10); });
  EXPECT_FALSE(longer.noisy()) << longer.slowest << " " << longer.fastest;
  // Nothing can be said of five prompts.
  EXPECT_EQ(
      pace_of(1, {1, 2, 3, 4, 5}, [](std::size_t p, std::int32_t) { return 1.0 + p; }).fastest,
      0.0);
}

TEST(PlainPace, NamesAThirdThatWasSlow) {
  const PlainPace pace =
      pace_of(1, even, [](std::size_t p, std::int32_t) { return p < 6 ? 0.01 : 0.015; });
  EXPECT_NEAR(pace.fastest / pace.slowest, 1.5, 1e-9);
  EXPECT_NEAR(pace.fastest, 100.0, 1e-9);
  EXPECT_EQ(noise_sentence(pace, "This machine"),
            "This machine was noisy: plain decoding alone made 66.7 tokens/s in one third of the "
            "prompts and 100.0 in another. Study again when nothing else runs, or with more "
            "--rounds.");
}

TEST(PlainPace, NamesARoundThatWasSlow) {
  const PlainPace pace =
      pace_of(3, even, [](std::size_t, std::int32_t round) { return round == 1 ? 0.013 : 0.01; });
  EXPECT_TRUE(pace.of_rounds);
  EXPECT_NEAR(pace.fastest / pace.slowest, 1.3, 1e-9);
  EXPECT_NE(noise_sentence(pace, "The machine").find("76.9 tokens/s in one round and 100.0"),
            std::string::npos);
}

}  // namespace
}  // namespace coppice::study
