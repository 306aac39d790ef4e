// JSON schemas, keyword by keyword.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "constraints/languages.h"

namespace coppice::constraints_test {
namespace {

struct SchemaCase {
  const char* schema;
  std::vector<std::string> yes, no;
};

void expect_cases(const std::vector<SchemaCase>& cases, JsonSpace space = JsonSpace::python) {
  for (const SchemaCase& one : cases) {
    const Shared constraint = schema(one.schema, space);
    for (const auto& text : one.yes)
      EXPECT_TRUE(accepts(*constraint, text)) << one.schema << " " << text;
    for (const auto& text : one.no)
      EXPECT_FALSE(accepts(*constraint, text)) << one.schema << " " << text;
  }
}

TEST(ConstraintSchema, Types) {
  expect_cases({
      {"{}",
       {"null", "true", "-1.5e+10", "\"x\"", "[]", R"({"a": [1, {}]})", "[[]]"},
       {"", "nul", "01", "1.", ".5", "[1,]", "{a: 1}", "\"", "'x'", "+1"}},
      {"true", {"1"}, {}},
      {R"({"type":"null"})", {"null"}, {"0", "false"}},
      {R"({"type":"boolean"})", {"true", "false"}, {"null", "\"true\""}},
      {R"({"type":"integer"})",
       {"0", "-7", "123456789012345678901234567890"},
       {"1.5", "01", "-", "\"1\""}},
      {R"({"type":"number"})", {"0", "-0.5", "1e5", "1.25E-3"}, {"1.", "e5", "0x1"}},
      {R"({"type":"string"})",
       {"\"\"", "\"a\\n\\u00e9\\\"\"", "\"\xe2\x82\xac\"", "\"\\ud83d\\ude00\"", "\"\\/\""},
       {"\"\n\"", "\"\\x\"", "\"\\u12\"", "\"\\ud83d\"", "\"\\ude00\"", "\"\xff\"", "x"}},
      {R"({"type":["string","null"]})", {"\"a\"", "null"}, {"1"}},
      {R"({"type":["integer","number"]})", {"1.5", "1"}, {"null"}},
      {R"({"enum":["a",1,null,[1,{"b":2}],1.0]})",
       {"\"a\"", "1", "null", R"([1, {"b": 2}])", "1.0"},
       {"\"b\"", "2", "[1]"}},
      {R"({"const":{"a":"\"\n\u0001"}})", {R"({"a": "\"\n\u0001"})"}, {"{}"}},
      {R"({"type":"string","enum":["a",1]})", {"\"a\""}, {"1"}},
      {R"({"enum":[1,2.5,7],"type":"integer","minimum":2})", {"7"}, {"1", "2.5"}},
      {R"({"enum":["aa","b",["x"],["y"]],"maxLength":1,"items":{"const":"x"}})",
       {"\"b\"", R"(["x"])"},
       {"\"aa\"", R"(["y"])"}},
  });
}

TEST(ConstraintSchema, Numbers) {
  // Every number of three digits and two decimals against the bounds.
  for (const auto& [text, least, most] : std::vector<std::tuple<const char*, double, double>>{
           {R"({"minimum":-3.25,"maximum":12.5})", -3.25, 12.5},
           {R"({"exclusiveMinimum":-0.5,"exclusiveMaximum":0.05})", -0.5 + 1e-9, 0.05 - 1e-9},
           {R"({"minimum":7})", 7, 1e9},
           {R"({"maximum":-2.5})", -1e9, -2.5},
           {R"({"minimum":99.99,"maximum":100.01})", 99.99, 100.01},
           {R"({"minimum":0,"exclusiveMaximum":10})", 0, 10 - 1e-9},
           {R"({"minimum":1e1,"maximum":1.1e1})", 10, 11}}) {
    for (const bool integer : {false, true}) {
      std::string with_type = text;
      with_type.insert(1, integer ? R"("type":"integer",)" : R"("type":"number",)");
      const Shared constraint = schema(with_type);
      for (int n = -13000; n <= 13000; n += integer ? 100 : 1) {
        char number[32];
        const int size = std::abs(n);
        const int length =
            std::snprintf(number, sizeof number, "%s%d", n < 0 ? "-" : "", size / 100);
        if (!integer)
          std::snprintf(number + length, sizeof number - static_cast<std::size_t>(length), ".%02d",
                        size % 100);
        if (n < 0 && n > -100 && integer) continue;
        const double value = n / 100.0;
        ASSERT_EQ(accepts(*constraint, number), value >= least && value <= most)
            << with_type << " " << number;
      }
    }
  }
  expect_cases({
      {R"({"type":"integer","minimum":10,"maximum":1000})",
       {"10", "999", "1000"},
       {"9", "1001", "010", "10.0"}},
      {R"({"type":"integer","exclusiveMinimum":1.5,"exclusiveMaximum":3})", {"2"}, {"1", "3"}},
      {R"({"type":"integer","multipleOf":15,"minimum":-40,"maximum":40})",
       {"0", "15", "-30", "30"},
       {"10", "45", "-45"}},
      {R"({"type":"number","multipleOf":0.25})", {"1.5", "0.25", "3", "-0.75"}, {"0.3", "1.251"}},
      {R"({"$schema":"http://json-schema.org/draft-04/schema#","type":"integer","minimum":3,"exclusiveMinimum":true})",
       {"4"},
       {"3"}},
      {R"({"type":"number","minimum":0.000001})", {"0.000001", "1"}, {"0", "0.0000009"}},
  });
}

TEST(ConstraintSchema, Strings) {
  expect_cases({
      {R"({"type":"string","minLength":2,"maxLength":3})",
       {"\"ab\"", "\"\\n\xe2\x82\xac\\u0041\"", "\"\\ud83d\\ude00x\""},
       {"\"a\"", "\"abcd\""}},
      {R"({"type":"string","pattern":"b+"})",
       {"\"b\"", "\"abbc\"", "\"\\\"b\""},
       {"\"ac\"", "\"\\u0062\""}},
      {R"({"type":"string","pattern":"^[\"\\\\n]{2}$"})",
       {R"("\"\\")", R"("n\"")"},
       {R"("\n")", "\"ab\""}},
      {R"x({"type":"string","pattern":"^(foo|bar$)"})x",
       {"\"foox\"", "\"bar\""},
       {"\"barx\"", "\"xfoo\""}},
      {R"({"type":"string","pattern":"a","minLength":3,"maxLength":4})",
       {"\"xxa\"", "\"axxx\""},
       {"\"a\"", "\"xxxx\"", "\"axxxx\""}},
      {R"({"type":"string","pattern":"^\\S+$","allOf":[{"pattern":"^[a-c]"},{"maxLength":2}]})",
       {"\"a-\""},
       {"\"a \"", "\"da\"", "\"abc\""}},
      {R"({"pattern":"^x$"})", {"\"x\"", "1", "null"}, {"\"y\""}},
      {R"({"format":"date"})",
       {"\"2024-02-29\"", "\"2023-12-31\"", "\"2000-02-29\"", "5"},
       {"\"2023-02-29\"", "\"1900-02-29\"", "\"2023-04-31\"", "\"x\""}},
      {R"({"format":"date-time"})",
       {"\"1985-04-12T23:20:50.52Z\"", "\"1996-12-19T16:39:57-08:00\""},
       {"\"1985-04-12\"", "\"1985-04-12T24:00:00Z\""}},
      {R"({"format":"time"})", {"\"08:30:06Z\""}, {"\"08:30:06\"", "\"8:30:06Z\""}},
      {R"({"format":"duration"})",
       {"\"P4DT12H30M5S\"", "\"PT1M\"", "\"P2W\""},
       {"\"PT1D\"", "\"P\"", "\"P1\""}},
      {R"({"format":"ipv4"})", {"\"127.0.0.1\""}, {"\"256.0.0.1\"", "\"1.2.3\"", "\"01.2.3.4\""}},
      {R"({"format":"ipv6"})",
       {"\"::\"", "\"::1\"", "\"1:2:3:4:5:6:7:8\"", "\"1::8\"", "\"::ffff:1.2.3.4\"", "\"1:2::\"",
        "\"1:2:3:4:5:6:7::\""},
       {"\"1:2\"", "\"1::2::3\"", "\"1:2:3:4:5:6:7:8:9\"", "\"12345::\"", "\":2:3:4:5:6:7:8\""}},
      {R"({"format":"uuid"})",
       {"\"2EB8AA08-aa98-11ea-b4aa-73b441d16380\""},
       {"\"2eb8aa08aa9811eab4aa73b441d16380\""}},
      {R"({"format":"email"})",
       {"\"joe.bloggs@example.com\""},
       {"\"2962\"", "\".a@b\"", "\"a..b@c\""}},
      {R"({"format":"hostname"})", {"\"www.example.com\"", "\"a\""}, {"\"-a\"", "\"a_b\"", "\"\""}},
      {R"({"format":"uri"})",
       {"\"http://foo.bar/?baz=qux#quux\"", "\"urn:a:b\"", "\"mailto:John@x.com\""},
       {"\"//foo\"", "\"abc\"", "\"http://a b\""}},
      {R"({"format":"uri-reference"})",
       {"\"/abc\"", "\"#x\"", "\"abc\"", "\"http://a/b\""},
       {"\"\\\\\\\\WINDOWS\"", "\"a b\""}},
      {R"({"format":"json-pointer"})", {"\"\"", "\"/a~0b/~1\""}, {"\"/~2\"", "\"a\""}},
      {R"({"format":"our-own"})", {"\"anything\""}, {"x"}},
  });
}

TEST(ConstraintSchema, Arrays) {
  expect_cases({
      {R"({"type":"array"})", {"[]", "[1, \"a\"]"}, {"[1,2]", "[1, ]"}},
      {R"({"type":"array","items":{"type":"integer"},"minItems":2,"maxItems":3})",
       {"[1, 2]", "[1, 2, 3]"},
       {"[]", "[1]", "[1, 2, 3, 4]", "[1, true]"}},
      {R"({"type":"array","prefixItems":[{"const":1},{"const":2}],"items":{"const":3}})",
       {"[]", "[1]", "[1, 2, 3, 3]"},
       {"[2]", "[1, 3]", "[1, 2, 2]"}},
      {R"({"type":"array","prefixItems":[{"const":1},{"const":2}],"items":false,"minItems":1})",
       {"[1]", "[1, 2]"},
       {"[]", "[1, 2, 3]"}},
      {R"({"type":"array","items":[{"const":1}],"additionalItems":{"const":2}})",
       {"[]", "[1, 2, 2]"},
       {"[1, 1]"}},
      {R"({"type":"array","maxItems":0})", {"[]"}, {"[1]"}},
      {R"({"type":"array","items":{"const":1},"maxItems":1,"uniqueItems":true})",
       {"[]", "[1]"},
       {"[1, 1]"}},
      {R"({"type":"array","allOf":[{"prefixItems":[{"type":"integer"}]},{"items":{"maximum":5}}]})",
       {"[3, 2.5]", "[5]"},
       {"[2.5]", "[6]"}},
  });
}

TEST(ConstraintSchema, Objects) {
  expect_cases({
      {R"({"type":"object"})", {"{}", R"({"x": 1, "y": {}})"}, {"{x}", R"({"a": 1,})"}},
      {R"({"type":"object","properties":{"b":{"const":1},"a":{"const":2}},"additionalProperties":false})",
       {"{}", R"({"b": 1})", R"({"a": 2})", R"({"b": 1, "a": 2})"},
       {R"({"a": 2, "b": 1})", R"({"c": 1})", R"({"b": 2})"}},
      {R"({"type":"object","properties":{"a":{"const":1}},"required":["a"]})",
       {R"({"a": 1})", R"({"a": 1, "zz": [2]})", R"({"a": 1, "ab": 0, "": 1})"},
       {"{}", R"({"zz": 1})", R"({"a": 2})", R"({"a": 1, "a": 1})", R"({"a": 1, "\u0061": 1})"}},
      {R"({"type":"object","additionalProperties":{"type":"integer"},"minProperties":1,"maxProperties":2})",
       {R"({"x": 1})", R"({"x": 1, "y": 2})"},
       {"{}", R"({"x": true})", R"({"x": 1, "y": 2, "z": 3})"}},
      {R"({"type":"object","properties":{"a":{},"b":{},"c":{}},"additionalProperties":false,"minProperties":2,"maxProperties":2})",
       {R"({"a": 1, "b": 1})", R"({"b": 1, "c": 1})"},
       {R"({"a": 1})", R"({"a": 1, "b": 1, "c": 1})"}},
      {R"({"type":"object","properties":{"a":{}},"required":["a"],"minProperties":3})",
       {R"({"a": 1, "b": 1, "c": 1})"},
       {R"({"a": 1, "b": 1})"}},
      {R"({"type":"object","required":["q"],"additionalProperties":{"const":1}})",
       {R"({"q": 1, "r": 1})"},
       {"{}", R"({"q": 2})"}},
      {R"({"type":"object","patternProperties":{"^a":{"const":1},"z$":{"type":"integer"}},"additionalProperties":false})",
       {R"({"ab": 1})", R"({"xz": 5})", R"({"az": 1})"},
       {R"({"b": 1})", R"({"az": 5})", R"({"ab": 2})"}},
      {R"({"type":"object","properties":{"ab":{"maximum":1}},"patternProperties":{"^a":{"minimum":1,"type":"integer"}},"additionalProperties":false})",
       {R"({"ab": 1})", R"({"ac": 7})"},
       {R"({"ab": 2})", R"({"ab": 0})"}},
      {R"({"type":"object","propertyNames":{"maxLength":2},"properties":{"abc":{}}})",
       {"{}", R"({"ab": 1})"},
       {R"({"abc": 1})"}},
      {R"({"type":"object","propertyNames":{"enum":["x","y"]}})", {R"({"y": 1})"}, {R"({"z": 1})"}},
      {R"({"type":"object","properties":{"a":false,"b":{"const":1}},"additionalProperties":false})",
       {"{}", R"({"b": 1})"},
       {R"({"a": 1})"}},
      {R"({"type":"object","properties":{"a\"\n":{"const":1}},"additionalProperties":false})",
       {R"({"a\"\n": 1})"},
       {}},
      {R"({"properties":{"a":{},"b":{}},"additionalProperties":false,"type":"object","dependentRequired":{"a":["b"]}})",
       {"{}", R"({"b": 1})", R"({"a": 1, "b": 1})"},
       {R"({"a": 1})"}},
      {R"({"properties":{"a":{},"b":{}},"additionalProperties":false,"type":"object","dependentSchemas":{"a":{"properties":{"b":{"const":2}}}}})",
       {R"({"b": 1})", R"({"a": 1})", R"({"a": 1, "b": 2})"},
       {R"({"a": 1, "b": 1})"}},
  });
}

TEST(ConstraintSchema, CombinedSchemas) {
  expect_cases({
      {R"({"anyOf":[{"type":"integer"},{"type":"string","maxLength":1}]})",
       {"1", "\"a\""},
       {"\"ab\"", "null"}},
      {R"({"oneOf":[{"type":"integer"},{"type":"string"}]})", {"1", "\"a\""}, {"null"}},
      {R"({"oneOf":[{"type":"integer","maximum":3},{"type":"integer","minimum":4}]})",
       {"3", "4"},
       {"1.5"}},
      {R"({"oneOf":[{"pattern":"^a","type":"string"},{"pattern":"^b","type":"string"}]})",
       {"\"a\"", "\"bx\""},
       {"\"c\""}},
      {R"({"oneOf":[{"properties":{"t":{"const":1}},"required":["t"],"type":"object"},{"properties":{"t":{"const":2},"u":{}},"required":["t","u"],"type":"object"}]})",
       {R"({"t": 1})", R"({"t": 2, "u": 0})"},
       {R"({"t": 2})", R"({"t": 3})"}},
      {R"({"allOf":[{"minimum":2},{"maximum":4}],"type":"integer"})", {"2", "4"}, {"1", "5"}},
      {R"({"type":"object","properties":{"a":{"type":"integer"}},"anyOf":[{"required":["a"]},{"required":["b"]}]})",
       {R"({"a": 1})", R"({"b": 1})", R"({"a": 1, "b": 2})"},
       {"{}", R"({"a": "x"})"}},
      {R"({"not":{"type":["object","array"]}})", {"1", "\"a\"", "null"}, {"[]", "{}"}},
      {R"({"$ref":"#/$defs/a","$defs":{"a":{"type":"integer"}},"minimum":3})",
       {"3"},
       {"2", "\"x\""}},
      {R"({"$schema":"http://json-schema.org/draft-07/schema#","$ref":"#/definitions/a","definitions":{"a":{"type":"integer"}},"minimum":3})",
       {"2"},
       {"\"x\""}},
      {R"({"$ref":"#/$defs/a~1b%25","$defs":{"a/b%":{"const":1}}})", {"1"}, {"2"}},
      {R"({"$ref":"#here","$defs":{"x":{"$anchor":"here","const":1}}})", {"1"}, {"2"}},
      {R"({"$id":"http://x/root","$ref":"http://x/inner","$defs":{"i":{"$id":"http://x/inner","const":1}}})",
       {"1"},
       {"2"}},
      {R"({"type":"object","properties":{"v":{"type":"integer"},"next":{"anyOf":[{"$ref":"#"},{"type":"null"}]}},"required":["v","next"],"additionalProperties":false})",
       {R"({"v": 1, "next": null})", R"({"v": 1, "next": {"v": 2, "next": null}})"},
       {R"({"v": 1, "next": {"v": 2}})", R"({"v": 1})"}},
      {R"({"if":{"type":"integer"},"x-note":1,"title":"t","default":3})", {"1", "{}"}, {}},
  });
}

TEST(ConstraintSchema, WhatDoesNotHold) {
  expect_cases({
      {R"({"not":{"type":"integer"}})",
       {"1.5", "-0.25", "\"a\"", "null", "[1]"},
       {"1", "1.0", "-7"}},
      {R"({"not":{"type":["integer","string"]}})", {"1.5", "null"}, {"1", "\"a\""}},
      {R"({"not":{"const":1},"type":"number"})", {"2", "1.01", "-1", "10"}, {"1", "1.0", "1.00"}},
      {R"({"not":{"enum":["a",null,true,-2.5]}})",
       {"\"b\"", "\"\"", "false", "2.5", "[]"},
       {"\"a\"", "null", "true", "-2.50"}},
      {R"({"not":{"required":["a","b"]},"type":"object"})",
       {"{}", R"({"a": 1})", R"({"c": 1, "b": 1})"},
       {R"({"a": 1, "b": 1})"}},
      {R"({"not":{"properties":{"a":{"const":1}}},"type":"object"})",
       {R"({"a": 2})"},
       {"{}", R"({"a": 1})"}},
      {R"({"not":{"anyOf":[{"minimum":5},{"type":"string"}]}})",
       {"4.5", "-7"},
       {"5", "\"a\"", "null"}},
      {R"({"not":{"allOf":[{"minimum":5},{"maximum":7}]},"type":"integer"})",
       {"4", "8"},
       {"5", "7"}},
      {R"({"not":{"oneOf":[{"minimum":5},{"maximum":7}]},"type":"integer"})",
       {"5", "7"},
       {"4", "8"}},
      {R"({"not":{"not":{"type":"null"}}})", {"null"}, {"1"}},
      {R"({"not":{"pattern":"^a"},"type":"string"})",
       {"\"b\"", "\"\"", "\"ba\""},
       {"\"a\"", "\"ab\""}},
      {R"({"not":{"minLength":2},"type":"string"})", {"\"b\""}, {"\"ab\""}},
      {R"({"not":{"maxItems":1},"items":{"const":1}})", {"[1, 1]"}, {"[]", "[1]", "3"}},
      {R"({"not":{"prefixItems":[{"const":1},{"const":2}]},"type":"array"})",
       {"[2]", "[1, 3]", "[2, 2]"},
       {"[]", "[1]", "[1, 2, 5]"}},
      {R"({"$defs":{"x":{"type":"string"}},"not":{"$ref":"#/$defs/x"}})", {"1"}, {"\"a\""}},
      {R"({"not":false})", {"1"}, {}},
      {R"({"oneOf":[{"type":"integer"},{"minimum":3}]})", {"2", "3.5", "null"}, {"3", "2.5"}},
      {R"({"oneOf":[{"required":["a"]},{"required":["b"]}],"type":"object"})",
       {R"({"a": 1})", R"({"b": 1, "c": 1})"},
       {"{}", R"({"a": 1, "b": 1})"}},
      {R"({"if":{"type":"string"},"then":{"maxLength":1},"else":{"type":"null"}})",
       {"\"a\"", "null"},
       {"\"ab\"", "1"}},
      {R"({"type":"object","properties":{"k":{"enum":["x","y"]},"n":{}},"required":["k"],"if":{"properties":{"k":{"const":"x"}}},"then":{"required":["n"]}})",
       {R"({"k": "x", "n": 1})", R"({"k": "y"})"},
       {R"({"k": "x"})", R"({"k": "z"})"}},
  });
}

TEST(ConstraintSchema, WhiteSpace) {
  const char* text =
      R"({"type":"object","properties":{"a":{"type":"array","items":{"const":1}}},"additionalProperties":false})";
  expect_cases({{text,
                 {R"({"a":[1,1]})", "{ \"a\"\n: [ 1 , 1\t] }", "{ }", "{}", "{\"a\":[ ]}"},
                 {" {}", "{} ", "{\v}"}}},
               JsonSpace::any);
  expect_cases({{text, {R"({"a": [1, 1]})", "{}"}, {R"({"a":[1,1]})", "{ }"}}}, JsonSpace::python);
  expect_cases({{text, {R"({"a":[1,1]})", "{}"}, {R"({"a": [1]})"}}}, JsonSpace::none);
  for (const JsonSpace space : {JsonSpace::any, JsonSpace::python, JsonSpace::none}) {
    const auto json = compiled({Kind::json, {}, space});
    EXPECT_TRUE(accepts(*json, "[{},\"\"]") == (space != JsonSpace::python));
    EXPECT_TRUE(accepts(*json, "[{}, \"\"]") == (space != JsonSpace::none));
  }
}

TEST(ConstraintSchema, RefusesByKeywordAndPath) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {R"({"properties":{"a":{"uniqueItems":true}}})", "#/properties/a/uniqueItems: not supported"},
      {R"({"items":{"not":{"items":{"const":1}}}})", "#/items/not/items: not supported"},
      {R"({"not":{"enum":[1,[2]]}})", "#/not/enum: not supported"},
      {R"({"if":{"contains":{}},"then":{}})", "contains: not supported"},
      {R"({"\u0001values":[1]})", "no keyword"},
      {R"({"contains":{}})", "#/contains: not supported"},
      {R"({"unevaluatedProperties":false})", "#/unevaluatedProperties: not supported"},
      {R"({"$dynamicRef":"#x"})", "#/$dynamicRef: not supported"},
      {R"({"oneOf":[{"items":{"type":"integer"}},{"items":{"minimum":3}}]})",
       "#/oneOf: alternative 0 may hold beside another"},
      {R"({"$ref":"http://elsewhere/x"})",
       "#/$ref: leads to 'http://elsewhere/x', which is another document"},
      {R"({"$ref":"#/$defs/x"})", "#/$ref: nothing at '#/$defs/x'"},
      {R"({"type":"text"})", "#/type: 'text' is no type"},
      {R"({"type":5})", "#/type: "},
      {R"({"enum":5})", "#/enum: no list"},
      {R"({"minLength":-1})", "#/minLength: "},
      {R"({"minimum":"x"})", "#/minimum: "},
      {R"({"multipleOf":0})", "#/multipleOf: "},
      {R"({"required":"a"})", "#/required: no list"},
      {R"({"pattern":"(a)\\1"})", "#/pattern"},
      {R"({"pattern":"(a)\\1"})", "back references"},
      {R"({"format":"regex"})", "#/format: 'regex' is not supported"},
      {R"({"properties":[]})", "#/properties: no object"},
      {R"({"items":5})", "#/items: a schema is"},
      {R"({"anyOf":[]})", "#/anyOf: an empty list"},
      {R"({"a":1,"a":2})", "appears twice"},
      {R"({"type":)", "not valid JSON"},
      {R"({"type":"string","enum":[1]})", "admits no text"},
      {R"({"type":"integer","minimum":3,"maximum":2})", "admits no text"},
      {R"({"type":"object","required":["a"],"properties":{"a":{"$ref":"#"}}})", "admits no text"},
      {R"({"type":"string","pattern":"^abc$","maxLength":2})", "admits no text"},
      {"false", "admits no text"},
      {"[]", "a schema is an object"},
  };
  for (const auto& [text, what] : cases) {
    const std::string message = refusal([&, &of = text] { schema(of); });
    // Quotes in messages are printable()'s.
    EXPECT_NE(message.find(what), std::string::npos) << text << ": " << message;
  }
}

TEST(ConstraintSchema, RefusesMisspeltKeywords) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {R"({"propertes":{"a":{}}})", "#/propertes: no keyword; did you mean 'properties'?"},
      {R"({"requierd":["a"]})", "#/requierd: no keyword; did you mean 'required'?"},
      {R"({"properties":{"a":{"minimun":3}}})",
       "#/properties/a/minimun: no keyword; did you mean 'minimum'?"},
      {R"({"items":{"tpye":"string"}})", "#/items/tpye: no keyword; did you mean 'type'?"},
      {R"({"additonalProperties":false})", "did you mean 'additionalProperties'?"},
      {R"({"oneof":[{}]})", "did you mean 'oneOf'?"},
      {R"({"item":{}})", "did you mean 'items'?"},
      {R"({"ref":"#/$defs/a"})", "did you mean '$ref'?"},
      {R"({"type:":"string"})", "#/type:: no keyword; did you mean 'type'?"},
      {R"({"$ref":"#/$defs/a","$defs":{"a":{"enmu":[1]}}})", "#/$defs/a/enmu: no keyword"},
      {R"({"patternProperties":{"^a":{"maxLenght":1}}})", "#/patternProperties/^a/maxLenght: no"},
      {R"({"not":{"minimun":3}})", "#/not/minimun: no keyword"},
      {R"({"if":{"allOf":[{"minimun":3}]},"then":{}})", "#/if/allOf/0/minimun: no keyword"},
      {R"({"if":{},"thn":{"const":1}})", "#/thn: no keyword; did you mean 'then'?"},
      {R"({"dependentSchemas":{"a":{"requird":["b"]}}})", "#/dependentSchemas/a/requird: no"},
  };
  for (const auto& [text, what] : cases) {
    const std::string message = refusal([&, &of = text] { schema(of); });
    EXPECT_NE(message.find(what), std::string::npos) << text << ": " << message;
  }
  // Names and values that are no keywords, and keywords of any draft that may assert nothing.
  expect_cases({
      {R"({"x-type":1,"x-formt":1,"_format":"date","@type":"a","note":"n","form":1,"propertyOrder":1,
           "title":"t","description":"d","$comment":"c","readOnly":true,"deprecated":false,
           "nullable":true,"contentEncoding":"base64","minContains":1,"then":false,"id":"a",
           "xml":{"requierd":1},"markdownDescription":"m"})",
       {"1"},
       {}},
      {R"({"properties":{"propertes":{"const":1},"typ":true},"required":["propertes"]})",
       {R"({"propertes": 1, "typ": 2})"},
       {"{}", R"({"propertes": 2})"}},
      {R"({"$ref":"#/$defs/typ","$defs":{"typ":{"const":1}}})", {"1"}, {"2"}},
      {R"({"patternProperties":{"enmu":{"const":1}}})", {R"({"enmu": 1})"}, {R"({"enmu": 2})"}},
      {R"({"enum":[{"enmu":1}],"default":{"typ":1},"examples":[{"typ":1}]})",
       {R"({"enmu": 1})"},
       {"{}"}},
      {R"({"const":{"typ":1}})", {R"({"typ": 1})"}, {"{}"}},
      {R"({"dependentRequired":{"typ":["itms"]}})",
       {R"({"typ": 1, "itms": 2})"},
       {R"({"typ": 1})"}},
  });
}

// What walks write is what a reader of JSON reads, numbers beyond its range apart.
TEST(ConstraintSchema, TextsAreJson) {
  const auto json = compiled({});
  std::size_t read = 0;
  for (const std::string& text : walk(*json, 300, 40, [](Constraint::State, const Mask&) {})) {
    try {
      read += nlohmann::json::parse(text).size();
    } catch (const nlohmann::json::out_of_range&) {
    } catch (const nlohmann::json::exception& error) {
      ADD_FAILURE() << text << ": " << error.what();
    }
  }
  EXPECT_GT(read, 100u);
}

}  // namespace
}  // namespace coppice::constraints_test
