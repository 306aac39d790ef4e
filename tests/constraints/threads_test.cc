// One constraint, many threads.
#include <gtest/gtest.h>

#include <map>
#include <thread>
#include <vector>

#include "constraints/languages.h"

namespace coppice::constraints_test {
namespace {

TEST(ConstraintThreads, SeeTheSameMasks) {
  const Shared constraint =
      schema(R"({"type":"object","additionalProperties":{"type":"string","maxLength":30}})");
  std::vector<std::map<Constraint::State, std::vector<std::uint32_t>>> seen(4);
  std::vector<std::thread> threads;
  for (auto& mine : seen) {
    threads.emplace_back([&] {
      walk(*constraint, 6, 60, [&](Constraint::State state, const Mask& mask) {
        mine[state] = mask.words;
        constraint->forced(state);
      });
    });
  }
  for (auto& thread : threads) thread.join();
  // The same walks, so the same texts: their states are numbered once for all threads.
  for (const auto& others : seen) EXPECT_EQ(others, seen.front());
  EXPECT_GT(seen.front().size(), 20u);
}

}  // namespace
}  // namespace coppice::constraints_test
