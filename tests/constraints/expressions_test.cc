// Derivatives of random expressions against a matcher that only knows what each operator means.
#include "constraints/expressions.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"

namespace coppice::constraints_test {
namespace {

using constraints::ByteSet;
using constraints::empty;
using constraints::Expr;
using constraints::Expressions;
using constraints::no_limit;
using constraints::nothing;

// All texts of up to `longest` letters, as sets: languages cut off there.
using Texts = std::set<std::string>;
constexpr std::size_t longest = 5;

Texts all_texts() {
  Texts all = {""};
  std::vector<std::string> last = {""};
  for (std::size_t n = 0; n < longest; ++n) {
    std::vector<std::string> next;
    for (const std::string& text : last) {
      for (const char c : {'a', 'b', 'c'}) next.push_back(text + c);
    }
    all.insert(next.begin(), next.end());
    last = next;
  }
  return all;
}

Texts concatenated(const Texts& a, const Texts& b) {
  Texts all;
  for (const std::string& x : a) {
    for (const std::string& y : b) {
      if (x.size() + y.size() <= longest) all.insert(x + y);
    }
  }
  return all;
}

struct Language {
  Expr expression;
  Texts texts;
};

class RandomLanguages {
 public:
  RandomLanguages(Expressions& x, unsigned seed) : x_(x), random_(seed) {}

  Language make(int depth) {
    if (depth == 0) {
      ByteSet set;
      Texts texts;
      for (const char c : {'a', 'b', 'c'}) {
        if (random_() % 2 == 0) continue;
        set.add(c);
        texts.insert(std::string(1, c));
      }
      return {x_.bytes(set), texts};
    }
    const Language a = make(depth - 1);
    switch (random_() % 6) {
      case 0:
      case 1: {
        const Language b = make(depth - 1);
        return {x_.concat(a.expression, b.expression), concatenated(a.texts, b.texts)};
      }
      case 2: {
        const Language b = make(depth - 1);
        Texts texts = a.texts;
        texts.insert(b.texts.begin(), b.texts.end());
        return {x_.either({a.expression, b.expression}), texts};
      }
      case 3: {
        const Language b = make(depth - 1);
        Texts texts;
        for (const std::string& text : a.texts) {
          if (b.texts.contains(text)) texts.insert(text);
        }
        return {x_.both({a.expression, b.expression}), texts};
      }
      case 4: {
        Texts texts;
        for (const std::string& text : all_texts()) {
          if (!a.texts.contains(text)) texts.insert(text);
        }
        const Language abc = letters();
        return {x_.both({x_.complement(a.expression), abc.expression}), texts};
      }
      default: {
        const auto least = static_cast<std::int32_t>(random_() % 4);
        const std::int32_t most =
            random_() % 3 == 0 ? no_limit : least + static_cast<std::int32_t>(random_() % 4);
        Texts power = {""}, texts;
        for (std::int32_t n = 0; n <= (most == no_limit ? least + 6 : most); ++n) {
          if (n >= least) texts.insert(power.begin(), power.end());
          power = concatenated(power, a.texts);
        }
        return {x_.repeat(a.expression, least, most), texts};
      }
    }
  }
  Language letters() {
    return {x_.repeat(x_.bytes(ByteSet::range('a', 'c')), 0, no_limit), all_texts()};
  }

 private:
  Expressions& x_;
  std::mt19937 random_;
};

TEST(Expressions, DerivativesMatchWhatOperatorsMean) {
  for (unsigned seed = 0; seed < 400; ++seed) {
    Expressions x;
    const Language language = RandomLanguages(x, seed).make(1 + static_cast<int>(seed % 4));
    const Texts all = all_texts();
    for (const std::string& text : all) {
      ASSERT_EQ(x.matches(language.expression, text), language.texts.contains(text))
          << "seed " << seed << ", text " << text;
    }
  }
}

// What no text goes on with has no state: a mask would lead there, and there would be no way out.
TEST(Expressions, EveryStateLeadsToAText) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    Expressions x;
    const Language language = RandomLanguages(x, seed).make(3);
    std::function<bool(Expr, int)> ends = [&](Expr e, int steps) {
      if (x.nullable(e)) return true;
      if (steps == 0) return false;
      for (const auto& edge : x.edges(e)) {
        if (ends(edge.to, steps - 1)) return true;
      }
      return false;
    };
    std::vector<Expr> met = {language.expression};
    for (std::size_t i = 0; i < met.size() && i < 50; ++i) {
      if (met[i] == nothing) continue;
      EXPECT_TRUE(ends(met[i], 12)) << "seed " << seed;
      ByteSet all;
      for (const auto& edge : x.edges(met[i])) {
        EXPECT_TRUE((all & x.set(edge.set)).empty()) << "bytes that lead to two states";
        all = all | x.set(edge.set);
        if (std::find(met.begin(), met.end(), edge.to) == met.end()) met.push_back(edge.to);
      }
    }
  }
}

TEST(Expressions, EqualStatesAreOneNumber) {
  Expressions x;
  const Expr a = x.bytes(ByteSet::range('a', 'a')), b = x.bytes(ByteSet::range('b', 'b'));
  EXPECT_EQ(x.either({a, b}), x.either({b, a, b}));
  EXPECT_EQ(x.concat(x.concat(a, b), a), x.concat(a, x.concat(b, a)));
  EXPECT_EQ(x.either({x.concat(a, b), x.concat(b, b)}),
            x.concat(x.bytes(ByteSet::range('a', 'b')), b));
  EXPECT_EQ(x.either({x.repeat(a, 0, 3), x.repeat(a, 2, 7)}), x.repeat(a, 0, 7));
  EXPECT_NE(x.either({x.repeat(a, 0, 3), x.repeat(a, 5, 7)}), x.repeat(a, 0, 7));
  EXPECT_EQ(x.concat(x.repeat(a, 1, 2), x.repeat(a, 3, no_limit)), x.repeat(a, 4, no_limit));
  EXPECT_EQ(x.both({a, b}), nothing);
  EXPECT_EQ(x.complement(x.complement(a)), a);
}

// Repeats are counted: a state is one expression however many may follow.
TEST(Expressions, LargeRepeatsAreCounters) {
  Expressions x;
  const Expr many = x.repeat(x.bytes(ByteSet::range('a', 'z')), 0, 1'000'000);
  Expr state = many;
  const std::size_t before = x.size();
  for (int i = 0; i < 1000; ++i) state = x.next(state, 'q');
  EXPECT_LE(x.size() - before, 1000u);
  EXPECT_EQ(state, x.repeat(x.bytes(ByteSet::range('a', 'z')), 0, 999'000));
}

TEST(Expressions, RulesThatNeverEndHaveNoTexts) {
  Expressions x;
  const Expr a = x.bytes(ByteSet::range('a', 'a'));
  const auto endless = x.declare("endless"), counted = x.declare("counted");
  x.define(endless, x.concat(a, x.rule(endless)));
  x.define(counted, x.either({x.concat(a, x.rule(endless)), x.concat(a, x.rule(counted)), a}));
  const Expr start = x.finish(x.rule(counted));
  EXPECT_TRUE(x.matches(start, "aaa"));
  EXPECT_FALSE(x.matches(start, ""));
  // Nothing of the endless rule is left in any state.
  EXPECT_EQ(x.edges(start).size(), 1u);

  Expressions y;
  const auto alone = y.declare("alone");
  y.define(alone, y.concat(y.text("a"), y.rule(alone)));
  EXPECT_EQ(y.finish(y.rule(alone)), nothing);
}

TEST(Expressions, MultiplesCountRemainders) {
  Expressions x;
  const Expr seventh = x.multiple(7, 0), quarter = x.multiple(25, 2);
  for (int n = 0; n < 500; ++n) {
    EXPECT_EQ(x.matches(seventh, std::to_string(n)), n % 7 == 0) << n;
    EXPECT_TRUE(x.matches(quarter, std::to_string(n)));
    char text[16];
    std::snprintf(text, sizeof text, "%d.%02d", n / 100, n % 100);
    EXPECT_EQ(x.matches(quarter, text), n % 25 == 0) << text;
  }
  EXPECT_FALSE(x.matches(seventh, "07"));
  EXPECT_FALSE(x.matches(quarter, "0."));
  EXPECT_TRUE(x.matches(quarter, "3.5"));
  // 0.3 is no beginning of a multiple of 0.25, so it is no state.
  EXPECT_EQ(x.next(x.next(x.next(quarter, '0'), '.'), '3'), nothing);
}

}  // namespace
}  // namespace coppice::constraints_test
