// Masks against following each token byte by byte, in all states that random walks meet.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "constraints/languages.h"

namespace coppice::constraints_test {
namespace {

std::vector<std::pair<std::string, Shared>> constraints_of_all_kinds() {
  std::vector<std::pair<std::string, Shared>> all;
  for (const char* pattern :
       {"[ab]+c?", "(ab|abc|ba)*", "[a-c]{3,7}x", ".{0,12}\"", "(\\d{2}-){2}\\d{4}",
        "[^\"]*\"tail.*", "([a-z]+ ){0,3}[a-z]+", "(aaa|aa)*b", "(a{2,5}){2,3}", "(a|aa|aaa){4,9}z",
        "(\\p{L}|\\d)*!", "[^a]{2,3}[^b]{4,}\"?", "(?!ab)[a-c]*", "a*b*c|d(a*b*c)x", "x*(y*z)*w?",
        "\xc3\xa9(t|\xc3\xa9)*"}) {
    all.emplace_back(pattern, regex(pattern));
  }
  for (
      const char* text :
      {R"({})", R"({"type":"string","maxLength":5})",
       R"({"type":"string","minLength":2,"maxLength":9})", R"({"type":"string","minLength":12})",
       R"({"properties":{"name":{"type":"string"},"age":{"type":"integer"}},"required":["name"],"type":"object"})",
       R"({"type":"array","items":{"type":"string","maxLength":3},"minItems":1,"maxItems":4})",
       R"({"type":"string","pattern":"^[a-c]{2,}\"?x","maxLength":8})",
       R"({"enum":["a","ab","\"",10,123,null,[1,"x"],{"name":1}]})",
       R"({"type":"number","minimum":-12.5,"maximum":123})",
       R"({"anyOf":[{"type":"string","maxLength":4},{"type":"string","pattern":"^aaaa+$"},{"type":"null"}]})",
       R"({"$defs":{"n":{"type":"object","properties":{"na":{"$ref":"#/$defs/n"}},"additionalProperties":false}},"$ref":"#/$defs/n"})"}) {
    for (const JsonSpace space : {JsonSpace::any, JsonSpace::python, JsonSpace::none}) {
      all.emplace_back(text, schema(text, space));
    }
  }
  all.emplace_back("gbnf", gbnf("root ::= \"[\" (s (\",\" s)*)? \"]\"\ns ::= \"\\\"\" ([^\"\\\\] | "
                                "\"\\\\\" .){0,6} \"\\\"\" | root"));
  return all;
}

TEST(ConstraintMasks, EqualFollowingEachTokenByteByByte) {
  std::size_t states = 0;
  for (const auto& [name, constraint] : constraints_of_all_kinds()) {
    walk(*constraint, 12, 30, [&, &text = name](Constraint::State state, const Mask& mask) {
      const Mask slow = slow_mask(*constraint, state);
      EXPECT_EQ(mask.words, slow.words) << text;
      EXPECT_EQ(mask.allowed, slow.allowed) << text;
      EXPECT_EQ(mask.only, slow.only) << text;
      ++states;
    });
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(states, 5000u);
}

TEST(ConstraintMasks, WalksEndInTheLanguage) {
  for (const auto& [name, constraint] : constraints_of_all_kinds()) {
    const auto ended = walk(*constraint, 40, 60, [](Constraint::State, const Mask&) {});
    EXPECT_GT(ended.size(), 0u) << name;
    for (const std::string& text : ended) EXPECT_TRUE(accepts(*constraint, text)) << name << text;
  }
}

TEST(ConstraintMasks, EndTokensExactlyWhereATextMayEnd) {
  const Shared constraint = regex("ab?");
  const Constraint::State start = constraint->start();
  EXPECT_FALSE(constraint->accepting(start));
  EXPECT_FALSE(constraint->mask(start)->has(end_token));
  EXPECT_EQ(constraint->advance(start, end_token), Constraint::nowhere);
  const Constraint::State a = constraint->advance(start, std::string_view("a"));
  EXPECT_TRUE(constraint->mask(a)->has(end_token));
  const Constraint::State ended = constraint->advance(a, end_token);
  EXPECT_TRUE(constraint->accepting(ended));
  EXPECT_EQ(constraint->mask(ended)->only, end_token);
  // Special tokens and ids beyond the vocabulary follow nowhere.
  EXPECT_EQ(constraint->advance(a, TokenId{0}), Constraint::nowhere);
  EXPECT_EQ(constraint->advance(a, TokenId{100000}), Constraint::nowhere);
  EXPECT_EQ(constraint->advance(a, TokenId{-1}), Constraint::nowhere);
}

TEST(ConstraintMasks, RefuseAStateThatNoTokenLeadsOutOf) {
  const std::vector<std::string> bytes = {"a", "</s>", "bc"};
  const std::vector<TokenId> ends = {1};
  const auto vocabulary = std::make_shared<const Vocabulary>(bytes, ends);
  const auto constraint = compiled({Kind::regex, {"a(bd|a)"}}, vocabulary);
  EXPECT_EQ(constraint->mask(constraint->start())->only, 0);
  EXPECT_EQ(constraint->mask(constraint->advance(constraint->start(), TokenId{0}))->only, 0);
  const auto stuck = compiled({Kind::regex, {"bd"}}, vocabulary);
  EXPECT_THROW(stuck->mask(stuck->start()), Error);
}

TEST(ConstraintMasks, ForcedTextIsWhatAllTextsShare) {
  const Shared constraint =
      schema(R"({"type":"object","properties":{"name":{"enum":["abcx","abcy"]},"age":{"const":12}},
                 "required":["name","age"],"additionalProperties":false})");
  EXPECT_EQ(constraint->forced_text(constraint->start()), R"({"name": "abc)");
  const auto state =
      constraint->advance(constraint->start(), std::string_view(R"({"name": "abcx)"));
  EXPECT_EQ(constraint->forced_text(state), R"(", "age": 12})");
  EXPECT_EQ(constraint->forced_text(constraint->advance(state, std::string_view("\"")))[0], ',');
  for (const auto from : {constraint->start(), state}) {
    auto at = from;
    std::string spelt;
    for (const TokenId token : constraint->forced(from)) {
      EXPECT_TRUE(constraint->mask(at)->has(token));
      at = constraint->advance(at, token);
      ASSERT_NE(at, Constraint::nowhere);
      spelt += constraint->vocabulary().bytes(token);
    }
    EXPECT_TRUE(constraint->forced_text(from).starts_with(spelt));
    EXPECT_GT(spelt.size(), 5u);
  }
  // "abc" may become a part of a longer token, such as one that ends with x.
  const Shared run = regex("(ab|abb)c?");
  EXPECT_EQ(run->forced_text(run->start()), "ab");
  EXPECT_TRUE(run->forced(run->advance(run->start(), std::string_view("abbc"))).empty());
}

TEST(ConstraintMasks, CacheIsBoundedAndMasksOutliveIt) {
  // 64 MiB of masks are 2,000 of a vocabulary of 260,000.
  std::vector<std::string> bytes = {"</s>"};
  for (int i = 0; i < 260'000; ++i) bytes.push_back("a" + std::to_string(i % 9000));
  for (const char* byte : {"a", "b"}) bytes.emplace_back(byte);
  const std::vector<TokenId> ends = {0};
  const auto vocabulary = std::make_shared<const Vocabulary>(bytes, ends);
  const auto constraint = compiled({Kind::regex, {"[ab]{0,9999}"}}, vocabulary);
  Constraint::State state = constraint->start();
  const auto first = constraint->mask(state);
  const Mask copy = *first;
  for (int i = 0; i < 3000; ++i) {
    state = constraint->advance(state, std::string_view("b"));
    constraint->mask(state);
  }
  EXPECT_LT(constraint->usage().masks, 2200u);
  EXPECT_GT(constraint->usage().masks, 500u);
  EXPECT_EQ(first->words, copy.words);
  EXPECT_EQ(constraint->mask(constraint->start())->words, copy.words);
}

}  // namespace
}  // namespace coppice::constraints_test
