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
      {"root ::= <think>\n", "tokens"},
      {"root ::= \"x\" )\n", "unexpected"},
  };
  for (const auto& [grammar, what] : cases) {
    const std::string message = refusal([&, &text = grammar] { gbnf(text); });
    EXPECT_NE(message.find(what), std::string::npos) << grammar << ": " << message;
  }
}

}  // namespace
}  // namespace coppice::constraints_test
