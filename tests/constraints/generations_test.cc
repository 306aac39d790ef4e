// One constraint for thousands of texts: its memory is bounded, and no text notices.
#include "constraints/generations.h"

#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>
#include <vector>

#include "constraints/languages.h"

namespace coppice::constraints_test {
namespace {

using constraints::compile;
using constraints::Generations;
using Kind = constraints::ConstraintSource::Kind;

// Strings of every length are states of their own, as are lists of them.
const char* const counted_strings =
    R"({"type":"array","items":{"type":"string","maxLength":400},"maxItems":200})";

std::shared_ptr<const constraints::Language> counted() {
  static const auto language = compile({Kind::json_schema, {counted_strings}});
  return language;
}

// A random text of at most so many tokens; returns the state that it ends in.
Constraint::State write(const Constraint& constraint, unsigned seed, int tokens) {
  std::mt19937 random(seed);
  Constraint::State state = constraint.start();
  for (int i = 0; i < tokens; ++i) {
    const std::vector<TokenId> all = tokens_of(*constraint.mask(state));
    const TokenId token = all[random() % all.size()];
    if (token == end_token) break;
    state = constraint.advance(state, token);
  }
  return state;
}

TEST(ConstraintGenerations, ThousandsOfTextsInThreads) {
  constexpr double renewed_at = 0.0005;
  const Generations generations(small_vocabulary(), counted(), renewed_at);
  std::atomic<int> wrong = 0;
  std::atomic<std::size_t> most_bytes = 0;
  std::vector<std::set<std::shared_ptr<const Constraint>>> met(4);
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < met.size(); ++t) {
    threads.emplace_back([&, t] {
      for (unsigned text = 0; text < 500; ++text) {
        const auto constraint = generations.for_text();
        const auto state = write(*constraint, 500 * t + text, 40);
        if (constraint->mask(state)->allowed == 0) ++wrong;
        if (text % 50 == 0) met[t].insert(constraint);
        std::size_t bytes = constraint->usage().bytes, before = most_bytes;
        while (bytes > before && !most_bytes.compare_exchange_weak(before, bytes)) {
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  std::set<std::shared_ptr<const Constraint>> all;
  for (auto& some : met) all.insert(some.begin(), some.end());
  EXPECT_GT(all.size(), 2u) << "constraints are to be renewed";
  EXPECT_LT(most_bytes, std::size_t{64} << 20);
  for (const auto& constraint : all) {
    EXPECT_LT(constraint->usage().filled, renewed_at + 0.005);
  }
}

// A text keeps the constraint that it began with, whose states mean nothing to another.
TEST(ConstraintGenerations, TextsGoOnInTheirOwn) {
  const Generations generations(small_vocabulary(), counted(), 0.001);
  const auto first = generations.for_text();
  const auto state = write(*first, 1, 30);
  const Mask before = *first->mask(state);
  unsigned texts = 2;
  while (generations.for_text() == first && texts < 2000) write(*first, texts++, 40);
  const auto second = generations.for_text();
  ASSERT_NE(second, first);
  EXPECT_EQ(second->usage().states,
            compile({Kind::json_schema, {counted_strings}})->expressions.size());
  EXPECT_EQ(first->mask(state)->words, before.words);
  EXPECT_EQ(slow_mask(*second, write(*second, 1, 30)).words, before.words);
}

// A language that is large itself is not renewed by every text.
TEST(ConstraintGenerations, LargeLanguagesStay) {
  std::vector<std::string> texts;
  for (int i = 0; i < 6000; ++i) texts.push_back(std::to_string(i * 7919) + "x");
  const Generations generations(small_vocabulary(), compile({Kind::choice, texts}), 0.001);
  const auto first = generations.for_text();
  EXPECT_GT(first->usage().filled, 0.001);
  EXPECT_EQ(generations.for_text(), first);
}

// A text that alone meets more states than are kept ends in one line, and the next one goes on.
TEST(ConstraintGenerations, ATextBeyondTheBoundFailsAlone) {
  const Generations generations(
      small_vocabulary(), compile({Kind::regex, {"((a{0,99}b{0,99}){0,99}){0,99}[ab]*a[ab]{22}"}}));
  std::string error;
  try {
    const auto constraint = generations.for_text();
    std::mt19937 random(1);
    auto state = constraint->start();
    for (int i = 0; i < 400; ++i) {
      constraint->mask(state);
      state = constraint->advance(state, std::string_view(random() % 2 == 0 ? "a" : "b"));
      ASSERT_NE(state, Constraint::nowhere);
    }
  } catch (const Error& caught) {
    error = caught.what();
  }
  EXPECT_NE(error.find("make it simpler"), std::string::npos) << error;
  const auto next = generations.for_text();
  EXPECT_NE(next->advance(next->start(), std::string_view("ab")), Constraint::nowhere);
}

}  // namespace
}  // namespace coppice::constraints_test
