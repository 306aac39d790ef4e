// Regular expressions: every construct, and random ones against a backtracking matcher.
#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <string>
#include <vector>

#include "constraints/languages.h"

namespace coppice::constraints_test {
namespace {

struct RegexCase {
  const char* pattern;
  std::vector<std::string> yes, no;
};

TEST(ConstraintRegex, Constructs) {
  const std::vector<RegexCase> cases = {
      {"abc", {"abc"}, {"", "ab", "abcd", "ABC"}},
      {"a|bc|", {"a", "bc", ""}, {"b", "abc"}},
      {"(a|b)*c", {"c", "abbac"}, {"ab", "ca"}},
      {"(?:ab)+", {"ab", "abab"}, {"", "aba"}},
      {"(?<year>\\d{4})", {"2024"}, {"202", "20245"}},
      {"a?b{2}c{2,}d{0,2}", {"bbcc", "abbcccdd"}, {"bcc", "bbc", "bbccddd"}},
      {"a*?b+?c??", {"b", "aabbc"}, {"a", "bcc"}},
      {"a{,3}", {"", "aaa"}, {"aaaa", "a{,3}"}},
      {"x{a}", {"x{a}"}, {"xa"}},
      {"[abc-e]", {"a", "d"}, {"f", "-", "ab"}},
      {"[a\\-z]", {"a", "-", "z"}, {"b"}},
      {"[]a]", {}, {"]"}},
      {"[^a-y]", {"z", "\xc3\xa9", "\xf0\x9f\x98\x80"}, {"b", "", "\xc3", "\x80"}},
      {"[\\d_-]+", {"1_-2"}, {"a"}},
      {".", {"a", "\xe2\x82\xac", "\t"}, {"\n", "\r", "\xe2\x80\xa8", "\xe2\x82", "\xed\xa0\x80"}},
      {"\\d\\D\\w\\W\\s\\S", {"1a_- b"}, {"aa_- b", "1a-- b", "1a_-bb"}},
      {"\\s", {" ", "\t", "\xc2\xa0", "\xe2\x80\x83", "\xef\xbb\xbf"}, {"a", "\xc2"}},
      {"\\n\\t\\r\\f\\v\\0", {std::string("\n\t\r\f\v\0", 6)}, {"nt"}},
      {"\\x41\\u0042\\u{1F600}\\cA\\uD83D\\uDE00",
       {"AB\xf0\x9f\x98\x80\x01\xf0\x9f\x98\x80"},
       {"AB"}},
      {"\\.\\*\\/\\[\\$", {".*/[$"}, {"a*/[$"}},
      {"\\p{Lu}\\p{L}+", {"Ab", "\xc3\x89\xc3\xa9"}, {"ab", "A1"}},
      {"\\P{L}", {"1"}, {"a"}},
      {"[\xc3\xa0-\xc3\xbf]{2}", {"\xc3\xa9\xc3\xa0"}, {"e\xc3\xa9", "\xc3\xa9"}},
      {"^abc$", {"abc"}, {"ab", "xabc"}},
      {"^(a|b$)", {"a", "b"}, {"ab"}},
      {"(^a|^b)c", {"ac", "bc"}, {"c"}},
      {"(?=a)[a-z]{2}", {"ab", "az"}, {"ba", "a"}},
      {"(?!foo)[a-z]+", {"fo", "fob", "bar"}, {"foo", "foobar"}},
      {"[a-z]+(?!.)", {"ab"}, {"1"}},
      {"(?!.*--)[a-z-]+", {"a-b-c", "-"}, {"a--b", "--"}},
  };
  for (const RegexCase& one : cases) {
    if (one.yes.empty()) {  // an empty set: no text at all
      EXPECT_NE(refusal([&] { regex(one.pattern); }).find("no text"), std::string::npos);
      continue;
    }
    const Shared constraint = regex(one.pattern);
    for (const auto& text : one.yes)
      EXPECT_TRUE(accepts(*constraint, text)) << one.pattern << " " << text;
    for (const auto& text : one.no)
      EXPECT_FALSE(accepts(*constraint, text)) << one.pattern << " " << text;
  }
}

TEST(ConstraintRegex, RefusesByPlace) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"(a)\\1", "back references"},
      {"\\bword", "word boundaries"},
      {"(?<=a)b", "looking behind"},
      {"(?i)a", "kind of group"},
      {"a++", "possessive"},
      {"(a", "not closed"},
      {"a)", "closes nothing"},
      {"[a", "ends too early"},
      {"*a", "nothing to repeat"},
      {"a{3,2}", "more than it allows"},
      {"[z-a]", "ends before it begins"},
      {"a\\", "ends too early"},
      {"\\q", "\\q is not supported"},
      {"\\p{Greek}", "\\p{Greek}"},
      {"a^b", "on its side"},
      {"(a$)*", "on its side"},
      {"[[:alpha:]]", "named classes"},
      {"\xff", "not UTF-8"},
      {"\\u{110000}", "no Unicode"},
      {"a**", "a repeat of a repeat"},
      {"\\uD83D\\u0041", "surrogate"},
  };
  for (const auto& [pattern, what] : cases) {
    const std::string message = refusal([&, &text = pattern] { regex(text); });
    EXPECT_NE(message.find(what), std::string::npos) << pattern << ": " << message;
    EXPECT_TRUE(message.starts_with("regular expression")) << message;
  }
  EXPECT_NE(refusal([] { regex("ab(?i)"); }).find("byte 3"), std::string::npos);
}

// A pattern is written, matched by trying every way, and compared with its automaton.
struct Tried {
  std::string pattern;
  std::function<void(const std::string&, std::size_t, const std::function<void(std::size_t)>&)>
      match;
};

Tried random_pattern(std::mt19937& random, int depth) {
  if (depth == 0) {
    const std::vector<std::pair<const char*, std::function<bool(char)>>> atoms = {
        {"a", [](char c) { return c == 'a'; }},
        {"[ab]", [](char c) { return c == 'a' || c == 'b'; }},
        {"[^a]", [](char c) { return c != 'a'; }},
        {".", [](char) { return true; }},
        {"c", [](char c) { return c == 'c'; }}};
    const auto& [text, test] = atoms[random() % atoms.size()];
    return {text, [test = test](const std::string& s, std::size_t at, const auto& then) {
              if (at < s.size() && test(s[at])) then(at + 1);
            }};
  }
  const Tried one = random_pattern(random, depth - 1);
  const auto kind = random() % 3;
  if (kind == 0) {
    const Tried two = random_pattern(random, depth - 1);
    return {one.pattern + two.pattern, [=](const std::string& s, std::size_t at, const auto& then) {
              one.match(s, at, [&](std::size_t middle) { two.match(s, middle, then); });
            }};
  }
  if (kind == 1) {
    const Tried two = random_pattern(random, depth - 1);
    return {"(" + one.pattern + "|" + two.pattern + ")",
            [=](const std::string& s, std::size_t at, const auto& then) {
              one.match(s, at, then);
              two.match(s, at, then);
            }};
  }
  const int least = static_cast<int>(random() % 3), most = least + static_cast<int>(random() % 3);
  return {"(" + one.pattern + "){" + std::to_string(least) + "," + std::to_string(most) + "}",
          [=](const std::string& s, std::size_t at, const auto& then) {
            std::function<void(std::size_t, int)> again = [&](std::size_t from, int times) {
              if (times >= least) then(from);
              if (times < most) one.match(s, from, [&](std::size_t to) { again(to, times + 1); });
            };
            again(at, 0);
          }};
}

TEST(ConstraintRegex, AgreesWithBacktracking) {
  std::mt19937 random(3);
  int matched = 0;
  for (int round = 0; round < 300; ++round) {
    const Tried tried = random_pattern(random, 1 + round % 3);
    Shared constraint;  // null where the empty text is all that is admitted
    try {
      constraint = regex(tried.pattern);
    } catch (const Error& error) {
      ASSERT_NE(std::string(error.what()).find("empty text alone"), std::string::npos);
    }
    for (int i = 0; i < 60; ++i) {
      std::string text;
      for (std::size_t n = random() % 8; n > 0; --n) text.push_back("abc"[random() % 3]);
      bool matches = false;
      tried.match(text, 0, [&](std::size_t end) { matches = matches || end == text.size(); });
      matched += matches ? 1 : 0;
      const bool is_accepted = constraint ? accepts(*constraint, text) : text.empty();
      ASSERT_EQ(is_accepted, matches) << tried.pattern << " on " << text;
    }
  }
  EXPECT_GT(matched, 300);
}

TEST(ConstraintRegex, ChoiceIsOneOfItsTexts) {
  const std::vector<std::string> texts = {"yes", "no", "not yet", "", "n\"o"};
  const auto choice = compiled({Kind::choice, texts});
  for (const auto& text : texts) EXPECT_TRUE(accepts(*choice, text));
  for (const char* text : {"ye", "yesno", "not"}) EXPECT_FALSE(accepts(*choice, text));
  EXPECT_NE(refusal([] { compiled({Kind::choice, {}}); }).find("no text"), std::string::npos);
}

TEST(ConstraintRegex, TheEmptyTextAloneIsRefused) {
  for (const auto& [kind, text] :
       std::vector<std::pair<Kind, std::string>>{{Kind::regex, ""},
                                                 {Kind::regex, "^(|a{0})$"},
                                                 {Kind::choice, ""},
                                                 {Kind::grammar, "root ::= a a\na ::= \"\""}}) {
    const std::string message = refusal([&, &k = kind, &t = text] { compiled({k, {t}}); });
    EXPECT_NE(message.find("admits the empty text alone"), std::string::npos) << text << message;
  }
  EXPECT_TRUE(accepts(*regex("a?"), ""));
}

}  // namespace
}  // namespace coppice::constraints_test
