// Grammars in llama.cpp's syntax.
#include <gtest/gtest.h>

#include <string>

#include "constraints/languages.h"

namespace coppice::constraints_test {
namespace {

TEST(ConstraintGbnf, ReadsTheSyntax) {
  const Shared list = gbnf(R"(# items
root   ::= item+   # one or more
item ::= "- " [^\r\n\x0b\x0c\u0085\u2028\u2029]+ "\n" |
         number{2,3} ( "\t" | "\"" )?
  | "é" .
number ::= [0-9] "," )");
  for (const char* text : {"- a b\n", "1,2,", "1,2,3,\t", "1,2,\"- x\n", "\xc3\xa9\n"}) {
    EXPECT_TRUE(accepts(*list, text)) << text;
  }
  for (const char* text : {"", "- \n", "1,", "1,2,3,4,5", "\xc3\xa9", "- a"}) {
    EXPECT_FALSE(accepts(*list, text)) << text;
  }
}

TEST(ConstraintGbnf, RecursionIsAStack) {
  const Shared nested = gbnf("root ::= \"(\" root \")\" | \"[\" root \"]\" | \"x\"\n");
  std::string open, close;
  for (int i = 0; i < 2000; ++i) {
    open += i % 3 == 0 ? '[' : '(';
    close += (1999 - i) % 3 == 0 ? ']' : ')';
  }
  EXPECT_TRUE(accepts(*nested, open + "x" + close));
  EXPECT_FALSE(accepts(*nested, open + "x" + close.substr(1)));
  EXPECT_FALSE(accepts(*nested, open + "x" + close + ")"));
  ASSERT_NE(close[4], close[6]);
  std::swap(close[4], close[6]);
  EXPECT_FALSE(accepts(*nested, open + "x" + close));
}

TEST(ConstraintGbnf, AmbiguousGrammarsKeepAllWays) {
  const Shared palindrome = gbnf("root ::= \"a\" root \"a\" | \"b\" root \"b\" | [ab]?\n");
  for (std::string text : {"", "a", "abba", "ababa", "bbbb", "aabbaa"}) {
    EXPECT_TRUE(accepts(*palindrome, text)) << text;
  }
  for (std::string text : {"ab", "abab", "aabba"}) EXPECT_FALSE(accepts(*palindrome, text)) << text;
}

TEST(ConstraintGbnf, SchemasStandInGrammars) {
  const Shared call = gbnf(R"gbnf(root ::= "f(" %json {"description": "\"}{", "$ref": "#/$defs/d}",
      "$defs": {"d}": {"enum": [1, "}"]}}} ")" ("," %json {"type": "object"})?)gbnf");
  for (std::string text : {"f(1)", "f(\"}\")", "f(1),{\"a\": [1]}"}) {
    EXPECT_TRUE(accepts(*call, text)) << text;
  }
  for (std::string text : {"f()", "f(2)", "f(1),[]", "1"}) {
    EXPECT_FALSE(accepts(*call, text)) << text;
  }
}

TEST(ConstraintGbnf, NotLeavesAllOtherText) {
  const Shared free = gbnf("root ::= %not(.* \"<a>\" .*) \"<a>\" [0-9]\n");
  for (std::string text : {"<a>1", "x <a <a <b> é\n<a>2", "<<a>3"}) {
    EXPECT_TRUE(accepts(*free, text)) << text;
  }
  for (std::string text : {"", "<a>", "x<a>y<a>1", "\xff<a>1", "\xc3<a>1"}) {
    EXPECT_FALSE(accepts(*free, text)) << text;
  }
}

TEST(ConstraintGbnf, TokensAreAskedForAlone) {
  // 0: the end, 1: an added token, then single bytes of text, and a piece of the added token's
  // text.
  std::vector<std::string> pieces = {"</s>", "\xff<a>", "<a", ">1"};
  for (int byte = 0; byte < 255; ++byte) pieces.push_back(std::string(1, static_cast<char>(byte)));
  const auto vocabulary = std::make_shared<const Vocabulary>(pieces, std::vector<TokenId>{0});
  EXPECT_TRUE(vocabulary->has_all_bytes());
  const auto byte = [](char c) { return 4 + static_cast<unsigned char>(c); };
  const auto make = [&](const char* grammar) {
    return compiled({Kind::grammar, {grammar}}, vocabulary);
  };

  const Shared call = make("root ::= .* %token(\"<a>\") \"1\"\n");
  const auto start = call->mask(call->start());
  EXPECT_TRUE(start->has(1));
  EXPECT_TRUE(start->has(byte('<')));
  EXPECT_FALSE(start->has(0));
  const auto inside = call->advance(call->start(), TokenId{1});
  EXPECT_EQ(call->mask(inside)->only, byte('1'));
  EXPECT_EQ(call->forced(inside), std::vector<TokenId>{byte('1')});
  // Written in other tokens it is the same text.
  auto spelt = call->start();
  for (const TokenId token : {2, 3}) spelt = call->advance(spelt, token);
  EXPECT_TRUE(call->accepting(spelt));

  // No other constraint has any of it.
  for (const Shared& other :
       {make("root ::= .*\n"), make("root ::= [^a]*\n"), make("root ::= %not(\"a\")\n"),
        compiled({Kind::regex, {"(a|[^a])*"}}, vocabulary),
        compiled({Kind::regex, {"(?!a)(a|[^a])*"}}, vocabulary), compiled({}, vocabulary),
        compiled({Kind::json_schema, {"{\"not\": {\"const\": \"a\"}}"}}, vocabulary)}) {
    walk(*other, 20, 20, [&](Constraint::State state, const Mask& mask) {
      EXPECT_FALSE(mask.has(1));
      EXPECT_EQ(tokens_of(mask), tokens_of(slow_mask(*other, state)));
    });
  }
}

TEST(ConstraintGbnf, RefusesByLine) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"root ::= a\n", "'a' is used and not defined"},
      {"a ::= \"x\"\n", "no rule \"root\""},
      {"root ::= \"x\"\nroot ::= \"y\"\n", "line 2: rule 'root' is defined twice"},
      {"root ::= \"x\n", "line 1: a text that is not closed"},
      {"root ::= [a-", "line 1: a set that is not closed"},
      {"root ::= (\"x\"\n", "not closed"},
      {"root := \"x\"\n", "::= is expected"},
      {"root ::= \"\\q\"\n", "unknown escape"},
      {"root ::= root \"x\" | \"y\"\n", "rule 'root' begins with itself"},
      {"root ::= a \"x\"\na ::= \"z\"? b\nb ::= a | \"y\"\n", "begins with itself"},
      {"root ::= \"a\" root\n", "no text"},
      {"root ::= <think>\n", "write %token("},
      {"root ::= %jso {}\n", "is expected"},
      {"root ::= %json [1]\n", "no schema in braces"},
      {"root ::= %json {\"a\": {}\n", "no schema in braces"},
      {"root ::= %json {\"type\": \"strange\"}\n", "JSON schema: "},
      {"root ::= %not(\"a\" root)\n", "of a rule"},
      {"root ::= %not(\"a\"\n", "not closed"},
      {"root ::= \"x\" )\n", "unexpected"},
  };
  for (const auto& [grammar, what] : cases) {
    const std::string message = refusal([&, &text = grammar] { gbnf(text); });
    EXPECT_NE(message.find(what), std::string::npos) << grammar << ": " << message;
  }
}

}  // namespace
}  // namespace coppice::constraints_test
