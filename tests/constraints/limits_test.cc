// Hostile constraints: bounded time and memory, one line.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "base/stopwatch.h"
#include "constraints/languages.h"
#include "reference/files.h"

namespace coppice::constraints_test {
namespace {

std::string repeated(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

// Builds it and follows a text; whatever happens takes little time, and errors are one line.
void expect_bounded(const char* what, const std::function<Shared()>& make,
                    const std::string& text) {
  const double start = now_seconds();
  try {
    const Shared constraint = make();
    Constraint::State state = constraint->start();
    for (std::size_t i = 0; i < text.size() && state != Constraint::nowhere; ++i) {
      constraint->mask(state);
      state = constraint->advance(state, text.substr(i, 1));
    }
    EXPECT_LT(constraint->usage().bytes, std::size_t{600} << 20) << what;
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    EXPECT_LT(message.size(), 600u) << message;
  }
  EXPECT_LT(now_seconds() - start, 120) << what;
}

TEST(ConstraintLimits, HostileExpressions) {
  const std::string many_a = repeated("a", 60);
  for (const auto& [pattern, text] : std::vector<std::pair<std::string, std::string>>{
           {"(a|b)*a(a|b){20}", repeated("ab", 30)},
           {"(a*)*b", many_a},
           {"((a{0,1000}){0,1000}){0,1000}", many_a},
           {"((a|aa){1,1000}){1,1000}", many_a},
           {"(.*a.*){0,30}", many_a},
           {"a{1000000000}b", many_a},
           {repeated("(", 150) + "a" + repeated(")*", 150), many_a},
           {repeated("(", 5000) + "a" + repeated(")", 5000), "a"},
           {repeated("a?", 3000) + repeated("a", 3000), many_a},
           {repeated("(a|b|ab)", 1000), many_a},
           {repeated("(?=a*)", 200) + "a*", many_a},
           {repeated("(?!b{3,900}a)", 20) + "[ab]*", repeated("ab", 30)},
           {"(?=(a|b)*a(a|b){18})(?=(a|b)*b(a|b){17})[ab]*", repeated("abb", 20)},
           {"\\p{L}{0,1000}\\p{N}{0,1000}x", "abc12"},
           {std::string(1 << 20, 'a'), "aaa"},
           {repeated("[a-z]|", 100'000) + "x", "a"}}) {
    expect_bounded(
        pattern.substr(0, 40).c_str(), [&, &p = pattern] { return regex(p); }, text);
  }
}

TEST(ConstraintLimits, HostileGrammars) {
  std::string chain = "root ::= r0\n", doubled = "root ::= r0\n", many = "root ::= ";
  for (int i = 0; i < 3000; ++i) {
    chain += "r" + std::to_string(i) + " ::= r" + std::to_string(i + 1) + "\n";
  }
  chain += "r3000 ::= \"a\"\n";
  for (int i = 0; i < 40; ++i) {
    const std::string next = "r" + std::to_string(i + 1);
    doubled += "r" + std::to_string(i) + " ::= " + next + " " + next + "\n";
  }
  doubled += "r40 ::= \"a\"?\n";
  for (int i = 0; i < 50'000; ++i) many += "\"" + std::to_string(i) + "\" | ";
  many += "\"x\"\n";
  expect_bounded(
      "chain", [&] { return gbnf(chain); }, "a");
  expect_bounded(
      "doubled", [&] { return gbnf(doubled); }, repeated("a", 40));
  expect_bounded(
      "many", [&] { return gbnf(many); }, "123");
  expect_bounded(
      "ambiguous", [] { return gbnf("root ::= \"a\" root root | \"a\"\n"); }, repeated("a", 200));
  expect_bounded(
      "parentheses", [&] { return gbnf("root ::= " + repeated("(", 100'000)); }, "");
}

TEST(ConstraintLimits, HostileSchemas) {
  std::string deep = "{}", alternatives = R"({"allOf":[)",
              wide = R"({"type":"object","properties":{)";
  for (int i = 0; i < 60; ++i) deep = R"({"items":)" + deep + "}";
  for (int i = 0; i < 40; ++i) {
    alternatives += R"({"anyOf":[{"minLength":)" + std::to_string(i) + R"(},{"maxLength":)" +
                    std::to_string(900 - i) + "}]},";
  }
  alternatives += "{}]}";
  for (int i = 0; i < 4000; ++i) wide += "\"key" + std::to_string(i) + R"(":{"type":"null"},)";
  std::string chain = R"({"$ref":"#/$defs/d0","$defs":{)";
  for (int i = 0; i < 3000; ++i) {
    chain += "\"d" + std::to_string(i) + R"(":{"items":{"$ref":"#/$defs/d)" +
             std::to_string(i + 1) + "\"}},";
  }
  chain += R"("d3000":{}}})";
  const auto of = [](const std::string& text) { return [&text] { return schema(text); }; };
  expect_bounded("deep", of(deep), repeated("[", 80));
  expect_bounded("alternatives", of(alternatives), "\"abc\"");
  const std::string wide_text = wide + R"("last":{}}})";
  expect_bounded("wide", of(wide_text), R"({"key7": null, "key3999": null, )");
  expect_bounded("chain", of(chain), repeated("[", 100));
  const std::string too_deep = repeated("[", 100'000);
  expect_bounded("nested", of(too_deep), "");
  const std::string
      loop = R"({"$ref":"#"})",
      pair =
          R"({"allOf":[{"$ref":"#/$defs/a"}],"$defs":{"a":{"anyOf":[{"$ref":"#"},{"$ref":"#/$defs/a"}]}}})";
  expect_bounded("loop", of(loop), "1");
  expect_bounded("pair", of(pair), "1");
  const std::string counted =
      R"({"type":"string","minLength":500000000,"maxLength":1000000000,"pattern":"^(a|b)*a(a|b){12}"})";
  expect_bounded("counted", of(counted), "\"aab");
  const std::string multiple = R"({"type":"integer","multipleOf":9973,"minimum":100000})";
  expect_bounded("multiple", of(multiple), "9973000");
}

TEST(ConstraintLimits, LongListsOfValues) {
  const auto list = [](int first, int last) {
    std::string values;
    for (int i = first; i < last; ++i) values += (i > first ? "," : "") + std::to_string(i);
    return "{\"enum\": [" + values + "]}";
  };
  const Shared alone = schema(list(0, 20'000));
  EXPECT_NE(alone->advance(alone->start(), "19999"), Constraint::nowhere);
  EXPECT_EQ(alone->advance(alone->start(), "20000"), Constraint::nowhere);
  const Shared few = schema("{\"allOf\": [" + list(0, 1000) + "," + list(999, 2000) + "]}");
  EXPECT_NE(few->advance(few->start(), "999"), Constraint::nowhere);
  EXPECT_EQ(few->advance(few->start(), "998"), Constraint::nowhere);
  for (const char* other : {"", "{\"not\": "}) {
    const std::string both = "{\"allOf\": [" + list(0, 20'000) + "," + other + list(1, 20'001) +
                             (*other == '\0' ? "" : "}") + "]}";
    const std::string message = testing::error_of([&] { schema(both); });
    EXPECT_NE(message.find("takes too long"), message.npos) << other << message;
  }
}

TEST(ConstraintLimits, LargeTextsAreRefusedBySize) {
  const std::string ten_megabytes(10u << 20, 'a');
  EXPECT_NE(refusal([&] { regex(ten_megabytes); }).find("10485760 bytes"), std::string::npos);
  EXPECT_NE(refusal([&] { gbnf(ten_megabytes); }).find("10485760 bytes"), std::string::npos);
  EXPECT_NE(refusal([&] { schema(ten_megabytes); }).find("10485760 bytes"), std::string::npos);
  EXPECT_NE(refusal([&] {
              compiled({Kind::choice, {ten_megabytes}});
            }).find("10485760 bytes"),
            std::string::npos);
}

}  // namespace
}  // namespace coppice::constraints_test
