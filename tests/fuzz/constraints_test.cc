// Expressions, grammars and schemas, damaged: each becomes a constraint whose texts can be walked,
// or one line says why not.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "base/stopwatch.h"
#include "constraints/languages.h"
#include "fuzz/mutator.h"

namespace coppice::testing {
namespace {

using constraints_test::gbnf;
using constraints_test::regex;
using constraints_test::schema;
using constraints_test::Shared;

struct Seeds {
  Shared (*make)(std::string_view);
  std::vector<std::string> texts;
};

const std::vector<Seeds>& all_seeds() {
  static const std::vector<Seeds> all = {
      {regex,
       {R"x(^(?!ab)(\d{3,5}-)*[^\W_a-f\u00e9-\u{1F600}]+?(?:x|y{2,}|\p{Lu})$)x",
        R"x((a|b)*a(a|b){12}(?=c*[\]d])[\]\\-]\x41\cA.*)x",
        R"x(((a{0,9}){0,9}b?){0,99}[\s\S]{1,300})x"}},
      {gbnf,
       {"root ::= list | \"x\" # all\nlist ::= \"[\" (root (\",\" ws root)*)? \"]\"\nws ::= [ "
        "\\t]{0,3}\n",
        "root ::= ([a-z\\x41\\u00e9] | \"\\\"\" .)+ tail{2,5}\ntail ::=\n  \"-\" root? |\n  "
        "[^-]\n"}},
      {[](std::string_view text) { return schema(text, constraints::JsonSpace::any); },
       {R"({"type":"object","properties":{"a":{"$ref":"#/$defs/n"},"b":{"enum":[1,"x",null,{"q":[2.5e3]}]}},
            "patternProperties":{"^z[0-9]{2}$":{"type":["integer","null"],"multipleOf":3}},"required":["a"],
            "minProperties":1,"maxProperties":9,"$defs":{"n":{"anyOf":[{"type":"array","items":{"$ref":"#/$defs/n"},
            "minItems":1,"maxItems":4},{"type":"number","minimum":-1.5,"exclusiveMaximum":1e3}]}}})",
        R"({"oneOf":[{"type":"string","pattern":"^a+b?$","maxLength":12},{"type":"string","format":"ipv6"},
            {"prefixItems":[{"const":"k"},true],"items":false,"type":"array"}],"dependentRequired":{"a":["b"]},
            "propertyNames":{"maxLength":3},"not":{"type":"object"},"allOf":[{"minLength":1}]})"}}};
  return all;
}

TEST(Constraints, DamagedOnesAreWalkedOrRefusedInOneLine) {
  const char* given = std::getenv("COPPICE_CONSTRAINT_MUTANTS");
  const int rounds = given != nullptr ? std::atoi(given) : 150;
  Mutator mutator(5);
  int made = 0, refused = 0;
  double longest = 0;
  for (const Seeds& seeds : all_seeds()) {
    for (const std::string& seed : seeds.texts) {
      ASSERT_NO_THROW(seeds.make(seed)) << seed;
      for (int round = 0; round < rounds; ++round) {
        const std::string text = mutator.mutate(seed);
        const double start = now_seconds();
        try {
          const Shared constraint = seeds.make(text);
          const auto ended =
              constraints_test::walk(*constraint, 2, 12,
                                     [&](constraints::Constraint::State state,
                                         const constraints::Mask&) { constraint->forced(state); });
          for (const std::string& one : ended)
            EXPECT_TRUE(constraints_test::accepts(*constraint, one)) << text;
          ++made;
        } catch (const Error& error) {
          const std::string message = error.what();
          EXPECT_EQ(message.find('\n'), std::string::npos) << message;
          EXPECT_LT(message.size(), 700u) << message;
          ++refused;
        }
        longest = std::max(longest, now_seconds() - start);
        if (::testing::Test::HasFailure()) FAIL() << text;
      }
    }
  }
  std::printf("%d made, %d refused, the slowest in %.2f s\n", made, refused, longest);
  EXPECT_GT(made, refused / 8);
  EXPECT_GT(refused, made / 8);
}

}  // namespace
}  // namespace coppice::testing
