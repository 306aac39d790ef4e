// What is said of many texts together.
#include "cli/totals.h"

#include <gtest/gtest.h>

#include <string>

#include "cli/generation_text.h"

namespace coppice::testing {
namespace {

Generation made_with(const std::string& policy, double temperature, std::uint64_t seed) {
  Generation generation;
  generation.tokens.assign(20, 5);
  generation.finish_reason = FinishReason::length;
  generation.statistics.prompt_tokens = 3;
  generation.used.policy = policy;
  generation.used.temperature = temperature;
  generation.used.seed = seed;
  generation.used.device = "cpu";
  generation.used.dtype = generation.used.kv_dtype = "f32";
  return generation;
}

TEST(Totals, SayHowMuchOfPromptsWasKept) {
  cli::Totals totals;
  Generation generation = made_with("dyspec", 0.7, 3);
  totals.add(generation);
  generation.statistics.cached_tokens = 2;
  totals.add(generation);
  totals.end(1.0, 0.0);
  EXPECT_NE(totals.table().find("40 new after 6 of prompts (2 cached)\n"), std::string::npos)
      << totals.table();
}

// The first text measures costs; that is no time of writing.
TEST(Totals, MeasuringCostsIsNoSpeed) {
  cli::Totals totals;
  totals.begin(100.0, 2.0);
  totals.add(made_with("dyspec", 0.7, 3));
  totals.end(109.0, 7.0);
  totals.add(made_with("dyspec", 0.7, 3));
  totals.end(111.0, 7.0);
  EXPECT_NE(totals.table().find("  tokens           40 new after 6 of prompts\n"
                                "  speed            6.7 tokens/s (6.000 s)\n"),
            std::string::npos)
      << totals.table();
}

TEST(Totals, SaysWhatTextsWereMadeWith) {
  cli::Totals totals;
  totals.end(1.0, 0.0);
  totals.add(made_with("dyspec", 0.7, 3));
  EXPECT_NE(totals.table().find(
                "  as used          dyspec, rejection, temperature 0.7, seed 3, cpu f32\n"),
            std::string::npos)
      << totals.table();
  totals.add(made_with("chain", 0.0, 4));  // a seed that no text follows
  EXPECT_NE(totals.table().find("  as used          several policies, rejection, several "
                                "temperatures, seed 3, cpu f32\n"),
            std::string::npos)
      << totals.table();
}

}  // namespace
}  // namespace coppice::testing
