#include "server/talk/tool_grammar.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "constraints/languages.h"
#include "server/talk/answers.h"

namespace coppice::server_test {
namespace {

using constraints::added_token_mark;
using constraints::Constraint;
using constraints::Vocabulary;
using server::ToolGrammar;

// Tags as tokens of their own, bytes, and pieces that calls are made of.
std::shared_ptr<const Vocabulary> vocabulary() {
  static const auto made = [] {
    std::vector<std::string> pieces = {"", "</s>"};
    for (int byte = 0; byte < 255; ++byte)
      pieces.push_back(std::string(1, static_cast<char>(byte)));
    for (const char* tag : {"<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[ARGS]", "<think>",
                            "</think>", "<|im_start|>", "<arg_key>", "</arg_key>", "<arg_value>",
                            "</arg_value>", "<minimax:tool_call>"}) {
      pieces.push_back(std::string(1, added_token_mark) + tag);
    }
    for (const char* piece :
         {"{\"",   "name",  "\": ",      "\"}",       "}}",     "\", \"",   "tool",
          "_call", "[TOOL", "true",      "12",        "\n{",    "\n<",      "add",
          "(",     ", ",    "function=", "parameter", "invoke", "｜DSML｜", "arg_"}) {
      pieces.emplace_back(piece);
    }
    return std::make_shared<const Vocabulary>(pieces, std::vector<TokenId>{1});
  }();
  return made;
}

ToolGrammar wanted(ToolForm form, bool is_required, bool is_single) {
  ToolGrammar grammar;
  grammar.form = {form, {"<think>", "</think>"}};
  grammar.tools = nlohmann::ordered_json::parse(R"([
    {"type": "function", "function": {"name": "add", "parameters": {"type": "object",
      "properties": {"a": {"$ref": "#/$defs/n"}, "b": {"enum": ["x", "y\""]}, "c": {"type": "boolean"}},
      "required": ["a"], "$defs": {"n": {"type": "integer", "minimum": 0, "maximum": 99}}}}},
    {"type": "function", "function": {"name": "now"}}])");
  grammar.is_required = is_required;
  grammar.is_single = is_single;
  return grammar;
}

std::shared_ptr<const Constraint> constraint(const ToolGrammar& grammar) {
  return constraints_test::compiled({constraints_test::Kind::grammar, {tool_grammar(grammar)}},
                                    vocabulary());
}

using constraints_test::accepts;

void expect(ToolForm form, bool is_required, bool is_single, const std::vector<const char*>& in,
            const std::vector<const char*>& out) {
  const auto made = constraint(wanted(form, is_required, is_single));
  for (const char* text : in) EXPECT_TRUE(accepts(*made, text)) << text;
  for (const char* text : out) EXPECT_FALSE(accepts(*made, text)) << text;
}

TEST(ToolGrammar, Hermes) {
  const char* const add =
      "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 7}}\n</tool_call>";
  const char* const both =
      "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 7, \"b\": "
      "\"y\\\"\"}}\n</tool_call>\n"
      "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
  const std::vector<const char*> broken = {
      "<tool_call>\n{\"name\": \"sub\", \"arguments\": {}}\n</tool_call>",
      "<tool_call>\n{\"name\": \"add\", \"arguments\": {}}\n</tool_call>",
      "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 100}}\n</tool_call>",
      "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1, \"d\": 1}}\n</tool_call>",
      "<tool_call>\n{\"name\": \"now\", \"arguments\": {\"a\": 1}}\n</tool_call>",
      "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 7}}\n"};
  expect(ToolForm::hermes, true, false,
         {add, both,
          "<think>\nI call <tool_call>\n</think>\n\n<tool_call>\n"
          "{\"name\": \"now\", \"arguments\": {}}\n</tool_call>"},
         broken);
  expect(ToolForm::hermes, true, true, {add}, {both, "", "Hi"});
  expect(ToolForm::hermes, false, false,
         {add, both, "", "Hi <tool> you",
          "Hi\n<tool_call>\n{\"name\": "
          "\"now\", \"arguments\": {}}\n</tool_call> so"},
         broken);
  expect(ToolForm::hermes, false, true, {add, ""}, {both});
  ToolGrammar open = wanted(ToolForm::hermes, true, false);
  open.in_reasoning = true;
  const auto made = constraint(open);
  EXPECT_TRUE(accepts(*made, std::string("so</think>\n\n") + add));
  EXPECT_FALSE(accepts(*made, add));
}

TEST(ToolGrammar, Llama) {
  const char* const add = "{\"name\": \"add\", \"parameters\": {\"a\": 7}}";
  expect(ToolForm::llama, true, false, {add}, {"", "Hi", "<|python_tag|>{}"});
  expect(ToolForm::llama, false, false,
         {add, "Hi", "{\"name\": \"Bob\", \"parameters\": {}}", "{}",
          "<|python_tag|>{\"name\": \"now\", \"parameters\": {}}"},
         {"{\"name\": \"add\", \"parameters\": {}}", " {\"name\":\"now\"", "{\"name\": \"add\"}",
          "<|python_tag|>x"});
}

TEST(ToolGrammar, Mistral) {
  const char* const add = "[TOOL_CALLS]add[ARGS]{\"a\": 7}";
  const char* const both = "[TOOL_CALLS]add[ARGS]{\"a\": 7}[TOOL_CALLS]now[ARGS]{}";
  expect(ToolForm::mistral_args, true, false, {add, both}, {"", "Hi", "[TOOL_CALLS]add[ARGS]{}"});
  expect(ToolForm::mistral_args, false, true, {add, "Hi", "Hi [TOOL"}, {both, "[TOOL_CALLS]"});
  expect(ToolForm::mistral_list, true, false,
         {"[TOOL_CALLS] [{\"name\": \"add\", \"arguments\": {\"a\": 1}}, {\"name\": \"now\", "
          "\"arguments\": {}}]"},
         {"[TOOL_CALLS][]", "Hi"});
  expect(ToolForm::mistral_list, false, true,
         {"Hi", "So[TOOL_CALLS][{\"name\": \"now\", \"arguments\": {}}]"},
         {"[TOOL_CALLS][{\"name\": \"now\", \"arguments\": {}}, {\"name\": \"now\", \"arguments\": "
          "{}}]"});
}

TEST(ToolGrammar, Pythonic) {
  expect(ToolForm::pythonic, true, false,
         {"[add(a=7)]", "[add(a=7, b=\"x\", c=true), now()]", "[add(a=7, c=false)]"},
         {"[add()]", "[add(b=\"x\")]", "[]", "Hi", "[add(a=100)]"});
  expect(ToolForm::pythonic, false, true, {"[add(a=7)]", "Hi", "[1, 2]"},
         {"[add(a=7), now()]", "[add(1)]"});
}

TEST(ToolGrammar, Tagged) {
  const char* const add =
      "<tool_call>\n<function=add>\n<parameter=a>\n7\n</parameter>\n</function>\n</tool_call>";
  const char* const both =
      "<tool_call>\n<function=add>\n<parameter=a>\n7\n</parameter>\n<parameter=b>\ny\"\n"
      "</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=now>\n</function>\n</"
      "tool_call>";
  const std::vector<const char*> broken = {
      "<tool_call>\n<function=add>\n</function>\n</tool_call>",
      "<tool_call>\n<function=add>\n<parameter=a>\n100\n</parameter>\n</function>\n</tool_call>",
      "<tool_call>\n<function=sub>\n</function>\n</tool_call>",
      "<tool_call>\n<function=now>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>",
      "<tool_call>\n<function=add>\n<parameter=a>\n7\n</parameter>\n<parameter=b>\n\"x\"\n"
      "</parameter>\n</function>\n</tool_call>"};
  expect(ToolForm::qwen_xml, true, false, {add, both}, broken);
  expect(ToolForm::qwen_xml, true, true, {add}, {both, "", "Hi"});
  expect(ToolForm::qwen_xml, false, false, {add, both, "", "Hi <tool>"}, broken);
  expect(ToolForm::glm_xml, true, false,
         {"<tool_call>add<arg_key>a</arg_key><arg_value>7</arg_value></tool_call>",
          "<tool_call>add\n<arg_key>a</arg_key>\n<arg_value>7</arg_value>\n<arg_key>c</arg_key>\n"
          "<arg_value>true</arg_value>\n</tool_call>\n<tool_call>now</tool_call>"},
         {"<tool_call>add</tool_call>",
          "<tool_call>add<arg_key>a</arg_key><arg_value>100</arg_value></tool_call>"});
  expect(
      ToolForm::minimax_xml, false, true,
      {"Hi", "<minimax:tool_call>\n<invoke name=\"now\">\n</invoke>\n</minimax:tool_call>"},
      {"<minimax:tool_call>\n<invoke name=\"now\">\n</invoke>\n<invoke name=\"now\">\n</invoke>\n"
       "</minimax:tool_call>"});
  const std::string call = "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"add\">\n";
  const std::string end = "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>";
  const std::string a = "<｜DSML｜parameter name=\"a\" string=\"";
  const std::string right = call + a + "false\">7" + end, wrong = call + a + "true\">7" + end;
  expect(ToolForm::dsml_tools, true, false, {right.c_str()}, {wrong.c_str()});
}

// Text without quotes can be held to its type and to a list, and no further.
TEST(ToolGrammar, TaggedSchemas) {
  const auto calls = [](const char* property, bool takes_any = false) {
    ToolGrammar grammar = wanted(ToolForm::qwen_xml, true, true);
    grammar.tools = nlohmann::ordered_json::parse(
        std::string(
            R"([{"function": {"name": "f", "parameters": {"$defs": {"t": {"type": "string"}},
        "properties": {"x": )") +
        property + R"(}, "required": ["x"]}}}])");
    grammar.takes_any_arguments = takes_any;
    return grammar;
  };
  const auto takes = [&](const ToolGrammar& grammar, const std::string& value) {
    return accepts(*constraint(grammar), "<tool_call>\n<function=f>\n<parameter=x>\n" + value +
                                             "\n</parameter>\n</function>\n</tool_call>");
  };
  for (const char* property :
       {R"({"type": "string"})", R"({"$ref": "#/$defs/t", "description": "d"})", "true", "{}",
        R"({"anyOf": [{"type": "string"}, {"type": "null"}]})",
        R"({"type": ["string", "integer"], "default": 1})"}) {
    EXPECT_TRUE(takes(calls(property), "5 <b>\nor")) << property;
    EXPECT_FALSE(takes(calls(property), "5\n</parameter>\n")) << property;
  }
  for (const char* property :
       {R"({"type": "string", "maxLength": 5})", R"({"type": "string", "pattern": "a"})",
        R"({"type": ["string", "integer"], "minimum": 1})",
        R"({"anyOf": [{"type": "string"}, {"type": "object", "required": ["a"]}]})"}) {
    EXPECT_THROW(tool_grammar(calls(property)), Error) << property;
    EXPECT_TRUE(takes(calls(property, true), "anything")) << property;
  }
  const ToolGrammar listed = calls(R"({"enum": ["a", 5, null]})");
  for (const char* value : {"a", "5", "null"}) EXPECT_TRUE(takes(listed, value));
  for (const char* value : {"b", "\"a\"", "55"}) EXPECT_FALSE(takes(listed, value));
  const ToolGrammar one = calls(R"({"const": "a"})");
  EXPECT_TRUE(takes(one, "a"));
  EXPECT_FALSE(takes(one, "b"));
  EXPECT_TRUE(takes(calls(R"({"type": "array", "items": {"$ref": "#/$defs/t"}})"), "[\"a\"]"));
  EXPECT_FALSE(takes(calls(R"({"type": "array", "items": {"$ref": "#/$defs/t"}})"), "[1]"));
}

TEST(ToolGrammar, NothingToHold) {
  EXPECT_EQ(tool_grammar(wanted(ToolForm::none, true, false)), "");
  ToolGrammar without = wanted(ToolForm::hermes, true, false);
  without.tools.clear();
  EXPECT_EQ(tool_grammar(without), "");
}

TEST(ToolGrammar, OtherSchemas) {
  ToolGrammar odd = wanted(ToolForm::hermes, true, true);
  odd.tools = nlohmann::ordered_json::parse(
      R"([{"function": {"name": "o\"\\\ndd", "parameters": {"properties": {"x": {"uniqueItems": true}}}}}])");
  EXPECT_THROW(constraint(odd), Error);
  odd.takes_any_arguments = true;
  EXPECT_TRUE(accepts(*constraint(odd),
                      "<tool_call>\n{\"name\": \"o\\\"\\\\\\ndd\", \"arguments\": {\"z\": [1]}}\n"
                      "</tool_call>"));
  const auto json = constraints_test::compiled(
      {constraints_test::Kind::grammar, {server::json_grammar(odd.form, false, "{\"const\": 1}")}},
      vocabulary());
  for (const char* text : {"1", "<think>2</think>\n1"}) EXPECT_TRUE(accepts(*json, text)) << text;
  EXPECT_FALSE(accepts(*json, "<think>1"));
}

// What the constraint lets through is what the parser reads as calls that the schemas admit.
TEST(ToolGrammar, RandomTextsAreCalls) {
  for (const ToolForm form :
       {ToolForm::hermes, ToolForm::llama, ToolForm::pythonic, ToolForm::mistral_list,
        ToolForm::mistral_args, ToolForm::qwen_xml, ToolForm::seed_xml, ToolForm::glm_xml,
        ToolForm::minimax_xml, ToolForm::dsml_functions, ToolForm::dsml_tools}) {
    for (const bool is_required : {true, false}) {
      for (const bool is_single : {true, false}) {
        const ToolGrammar grammar = wanted(form, is_required, is_single);
        const auto made = constraint(grammar);
        std::vector<std::string> ended =
            constraints_test::walk(*made, 60, 400, [](auto, const auto&) {});
        EXPECT_GT(ended.size(), 5u);
        for (std::string& text : ended) {
          std::erase(text, added_token_mark);
          AnswerOptions options;
          options.form = grammar.form;
          options.tools = {"add", "now"};
          options.types = server::ArgumentTypes(grammar.tools);
          const Answer answer = read(options, {text});
          options.stream_arguments = true;
          EXPECT_EQ(read(options, {text}), answer) << text;
          EXPECT_GE(answer.calls.size(), is_required ? 1u : 0u) << text;
          EXPECT_TRUE(!is_required || answer.content.empty()) << text;
          EXPECT_TRUE(!is_single || answer.calls.size() <= 1) << text;
          for (const Call& call : answer.calls) {
            const auto arguments = nlohmann::json::parse(call.arguments, nullptr, false);
            ASSERT_TRUE(arguments.is_object()) << text;
            if (call.name == "add") {
              ASSERT_TRUE(arguments.contains("a")) << text;
              EXPECT_LE(arguments["a"].get<int>(), 99) << text;
            } else {
              EXPECT_EQ(call.name, "now") << text;
              EXPECT_TRUE(arguments.empty()) << text;
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace coppice::server_test
