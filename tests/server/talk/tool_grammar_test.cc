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
                            "</think>", "<|im_start|>"}) {
      pieces.push_back(std::string(1, added_token_mark) + tag);
    }
    for (const char* piece : {"{\"", "name", "\": ", "\"}", "}}", "\", \"", "tool", "_call",
                              "[TOOL", "true", "12", "\n{", "\n<", "add", "(", ", "}) {
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
  for (const ToolForm form : {ToolForm::hermes, ToolForm::llama, ToolForm::pythonic,
                              ToolForm::mistral_list, ToolForm::mistral_args}) {
    for (const bool is_required : {true, false}) {
      for (const bool is_single : {true, false}) {
        const ToolGrammar grammar = wanted(form, is_required, is_single);
        const auto made = constraint(grammar);
        std::vector<std::string> ended =
            constraints_test::walk(*made, 60, 120, [](auto, const auto&) {});
        EXPECT_GT(ended.size(), 5u);
        for (std::string& text : ended) {
          std::erase(text, added_token_mark);
          AnswerOptions options;
          options.form = grammar.form;
          options.tools = {"add", "now"};
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
