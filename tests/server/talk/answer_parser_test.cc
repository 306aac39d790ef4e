#include "server/talk/answer_parser.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "fuzz/mutator.h"
#include "reference/quick.h"
#include "reference/sanitized.h"
#include "server/talk/answers.h"

namespace coppice::server_test {
namespace {

const server::ReasoningTags think{"<think>", "</think>"};

AnswerOptions options(ToolForm form, server::ReasoningTags reasoning = {}) {
  AnswerOptions options;
  options.form = {form, reasoning};
  options.tools = {"weather", "add"};
  return options;
}

struct Case {
  const char* text;
  Answer answer;
};

void check(ToolForm form, const std::vector<Case>& cases, server::ReasoningTags reasoning = {}) {
  for (const auto& [text, answer] : cases) {
    EXPECT_EQ(read_cut_everywhere(options(form, reasoning), text), answer) << text;
  }
}

TEST(AnswerParser, HermesCalls) {
  check(ToolForm::hermes,
        {{"Hello.\n", {"Hello.\n", "", {}}},
         {"<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call>",
          {"", "", {{"call_0", "add", "{\"a\": 1}"}}}},
         {"I look.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Zürich "
          "}\\\"\"}}\n"
          "</tool_call>\n<tool_call>\n{\"arguments\":{},\"name\":\"add\"}</tool_call>\n",
          {"I look.",
           "",
           {{"call_0", "weather", "{\"city\": \"Zürich }\\\"\"}"}, {"call_1", "add", "{}"}}}},
         // Two calls between one pair of tags, and a tag that is never closed.
         {"<tool_call>{\"name\":\"a\",\"arguments\":{}}\n{\"name\":\"b\",\"arguments\":{}}",
          {"", "", {{"call_0", "a", "{}"}, {"call_1", "b", "{}"}}}},
         {"<tool_call>{\"name\":\"a\",\"arguments\":{}}<tool_call>{\"name\":\"b\",\"arguments\":{}}"
          "</tool_call> so",
          {" so", "", {{"call_0", "a", "{}"}, {"call_1", "b", "{}"}}}},
         {"<tool_call>{\"id\": \"x9\", \"name\":\"a\",\"arguments\":{\"b\": [1, {\"c\": null}]}}"
          "</tool_call>",
          {"", "", {{"x9", "a", "{\"b\": [1, {\"c\": null}]}"}}}}});
}

TEST(AnswerParser, WhatIsBrokenStaysContent) {
  std::vector<Case> cases;
  for (const char* text :
       {"<tool_call> is a tag", "<tool_call>", "a < b <tool_cal", "<tool_call>{\"name\": \"a\"}",
        "<tool_call>{\"name\": \"a\", \"arguments\": {\"x\": tru}}</tool_call>",
        "<tool_call>{\"name\": \"a\", \"arguments\": \"x\"}</tool_call>",
        "<tool_call>{\"name\": 1, \"arguments\": {}}</tool_call>",
        "<tool_call>{\"name\": \"\", \"arguments\": {}}</tool_call>",
        "<tool_call>{\"name\": \"a\", \"arguments\": {\"x\": 1}", "<tool_call>[]</tool_call>",
        "<tool_call>{\"name\": \"a\", \"name\": \"b\", \"arguments\": {}}</tool_call>",
        "<tool_call>{\"name\": \"a\", \"arguments\": {}]</tool_call>"}) {
    cases.push_back({text, {text, "", {}}});
  }
  check(ToolForm::hermes, cases);
  check(ToolForm::hermes,
        {{"<tool_call>oh <tool_call>{\"name\":\"a\",\"arguments\":{}}</tool_call>",
          {"<tool_call>oh", "", {{"call_0", "a", "{}"}}}}});
  AnswerOptions without = options(ToolForm::hermes);
  without.tools.clear();
  const char* call = "<tool_call>{\"name\":\"a\",\"arguments\":{}}</tool_call>";
  EXPECT_EQ(read_cut_everywhere(without, call), (Answer{call, "", {}}));
}

TEST(AnswerParser, Reasoning) {
  check(ToolForm::hermes,
        {{"<think>\nWell, <b> \n\n so\n</think>\n\nYes.", {"Yes.", "Well, <b> \n\n so", {}}},
         {"<think>\n\n</think>\n\nYes.", {"Yes.", "", {}}},
         {"\n <think>cut off </thin", {"", "cut off </thin", {}}},
         {"I <think> so</think>", {"I <think> so</think>", "", {}}},
         {"<thinking", {"<thinking", "", {}}},
         {"<think>I call <tool_call>{</think>\n<tool_call>{\"name\":\"a\",\"arguments\":{}}"
          "</tool_call>",
          {"", "I call <tool_call>{", {{"call_0", "a", "{}"}}}}},
        think);
  AnswerOptions open = options(ToolForm::none, think);
  open.in_reasoning = true;
  EXPECT_EQ(read_cut_everywhere(open, "\nHm\n</think>\nYes"), (Answer{"Yes", "Hm", {}}));
  EXPECT_EQ(read_cut_everywhere(open, "<think>Hm</think>Yes"), (Answer{"Yes", "Hm", {}}));
  EXPECT_EQ(read_cut_everywhere(open, "Hm"), (Answer{"", "Hm", {}}));
}

TEST(AnswerParser, LlamaCalls) {
  check(ToolForm::llama,
        {{"{\"name\": \"add\", \"parameters\": {\"a\": 1}}",
          {"", "", {{"call_0", "add", "{\"a\": 1}"}}}},
         {"<|python_tag|>{\"type\": \"function\", \"name\": \"other\", \"parameters\": {}}",
          {"", "", {{"call_0", "other", "{}"}}}},
         {" {\"name\": \"add\", \"parameters\": {}}; {\"name\": \"weather\", \"parameters\": {}}\n",
          {"", "", {{"call_0", "add", "{}"}, {"call_1", "weather", "{}"}}}},
         // JSON that is no call, and a name that was not offered.
         {"{\"answer\": 1}", {"{\"answer\": 1}", "", {}}},
         {"{\"name\": \"Bob\", \"parameters\": {}}",
          {"{\"name\": \"Bob\", \"parameters\": {}}", "", {}}},
         {"So: {\"name\": \"add\", \"parameters\": {}}",
          {"So: {\"name\": \"add\", \"parameters\": {}}", "", {}}},
         {"<|python_tag|>print(1)", {"<|python_tag|>print(1)", "", {}}}});
}

TEST(AnswerParser, PythonicCalls) {
  check(
      ToolForm::pythonic,
      {{"[add(a=1, b=-2.5), weather(city='Z\\'ü\\n', days=[1, 2,], more={\"x\": True, 'y': None})]",
        {"",
         "",
         {{"call_0", "add", "{\"a\":1,\"b\":-2.5}"},
          {"call_1", "weather",
           "{\"city\":\"Z'ü\\n\",\"days\":[1,2],\"more\":{\"x\":true,\"y\":null}}"}}}},
       {"<|python_tag|>[add()] ", {"", "", {{"call_0", "add", "{}"}}}},
       {"[1, 2]", {"[1, 2]", "", {}}},
       {"[link](http://x)", {"[link](http://x)", "", {}}},
       {"[add(1)]", {"[add(1)]", "", {}}},
       {"[add(a=b)]", {"[add(a=b)]", "", {}}},
       {"[other()]", {"[other()]", "", {}}},
       {"[add(a=1)", {"[add(a=1)", "", {}}}});
}

TEST(AnswerParser, MistralCalls) {
  const std::vector<Case> cases = {
      {"[TOOL_CALLS] [{\"name\": \"add\", \"arguments\": {\"a\": 1}, \"id\": \"abcdefghi\"}, "
       "{\"name\": \"weather\", \"arguments\": {}}]",
       {"", "", {{"abcdefghi", "add", "{\"a\": 1}"}, {"call_0", "weather", "{}"}}}},
      {"On it.[TOOL_CALLS]add[ARGS]{\"a\": \"[TOOL_CALLS]\"}[TOOL_CALLS]weather[ARGS]{}",
       {"On it.",
        "",
        {{"call_0", "add", "{\"a\": \"[TOOL_CALLS]\"}"}, {"call_1", "weather", "{}"}}}},
      {"[TOOL_CALLS]add[CALL_ID]123456789[ARGS]{}", {"", "", {{"123456789", "add", "{}"}}}},
      {"[TOOL_CALLS]add{}", {"", "", {{"call_0", "add", "{}"}}}},
      {"[TOOL_CALLS]add[AR", {"[TOOL_CALLS]add[AR", "", {}}},
      {"[TOOL_CALLS][ARGS]{}", {"[TOOL_CALLS][ARGS]{}", "", {}}},
      {"[TOOL_CALLS]add[ARGS]x", {"[TOOL_CALLS]add[ARGS]x", "", {}}},
      {"[TOOL_CALLS]what is it", {"[TOOL_CALLS]what is it", "", {}}},
      {"[TOOL_CALLS][]", {"[TOOL_CALLS][]", "", {}}}};
  check(ToolForm::mistral_list, cases);
  check(ToolForm::mistral_args, cases);
}

AnswerOptions tagged(ToolForm form) {
  AnswerOptions tagged = options(form);
  tagged.types = server::ArgumentTypes(nlohmann::ordered_json::parse(R"([
    {"function": {"name": "weather", "parameters": {"properties": {
      "city": {"type": "string"}, "days": {"type": "integer"}, "now": {"type": "boolean"},
      "more": {"type": "object"}, "note": {"anyOf": [{"type": "string"}, {"type": "null"}]}}}}}])"));
  return tagged;
}

struct Tagged {
  ToolForm form;
  std::string text;
};

// As published templates of these families write the two calls.
const std::vector<Tagged>& tagged_texts() {
  static const std::vector<Tagged> all = {
      {ToolForm::qwen_xml,
       "I look.\n\n<tool_call>\n<function=weather>\n<parameter=city>\nZürich\nor \"so\"\n"
       "</parameter>\n<parameter=days>\n3\n</parameter>\n<parameter=now>\nTrue\n</parameter>\n"
       "<parameter=more>\n{\"x\": [1, "
       "null]}\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n"
       "<function=weather>\n<parameter=city>\n7\n</parameter>\n</function>\n</tool_call>"},
      {ToolForm::seed_xml,
       "I look.\n\n<seed:tool_call>\n<function=weather>\n<parameter=city>Zürich\nor \"so\""
       "</parameter>\n<parameter=days>3</parameter>\n<parameter=now>True</parameter>\n"
       "<parameter=more>{'x': [1, None]}</parameter>\n</function>\n</seed:tool_call>\n"
       "<seed:tool_call>\n<function=weather>\n<parameter=city>7</parameter>\n</function>\n"
       "</seed:tool_call>"},
      {ToolForm::glm_xml,
       "I look.<tool_call>weather<arg_key>city</arg_key><arg_value>Zürich\nor \"so\"</arg_value>"
       "<arg_key>days</arg_key><arg_value>3</arg_value><arg_key>now</arg_key><arg_value>true"
       "</arg_value><arg_key>more</arg_key><arg_value>{\"x\": [1, null]}</arg_value></tool_call>"
       "<tool_call>weather<arg_key>city</arg_key><arg_value>7</arg_value></tool_call>"},
      {ToolForm::glm_xml,
       "I look.\n<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Zürich\nor \"so\""
       "</arg_value>\n<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n<arg_key>now</arg_key>\n"
       "<arg_value>true</arg_value>\n<arg_key>more</arg_key>\n<arg_value>{\"x\": [1, null]}"
       "</arg_value>\n</tool_call>\n<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>7"
       "</arg_value>\n</tool_call>"},
      {ToolForm::minimax_xml,
       "I look.\n<minimax:tool_call>\n<invoke name=\"weather\">\n<parameter "
       "name=\"city\">Zürich\nor "
       "\"so\"</parameter>\n<parameter name=\"days\">3</parameter>\n<parameter name=\"now\">true"
       "</parameter>\n<parameter name=\"more\">{\"x\": [1, null]}</parameter>\n</invoke>\n"
       "<invoke name=\"weather\">\n<parameter name=\"city\">7</parameter>\n</invoke>\n"
       "</minimax:tool_call>"}};
  static const auto with_dsml = [] {
    std::vector<Tagged> texts = all;
    for (const auto& [form, block] : {std::pair{ToolForm::dsml_functions, "function_calls>"},
                                      std::pair{ToolForm::dsml_tools, "tool_calls>"}}) {
      const std::string mark = "｜DSML｜", open = "<" + mark, close = "</" + mark;
      const auto argument = [&](const std::string& key, const std::string& kind,
                                const std::string& value) {
        return open + "parameter name=\"" + key + "\" string=\"" + kind + "\">" + value + close +
               "parameter>\n";
      };
      const std::string call = open + "invoke name=\"weather\">\n", end = close + "invoke>\n";
      texts.push_back({form, "I look.\n\n" + open + block + "\n" + call +
                                 argument("city", "true", "Zürich\nor \"so\"") +
                                 argument("days", "false", "3") + argument("now", "false", "true") +
                                 argument("more", "false", "{\"x\": [1, null]}") + end + call +
                                 argument("city", "true", "7") + end + close + block});
    }
    return texts;
  }();
  return with_dsml;
}

// Spelling apart: some templates write Python.
Answer with_values(Answer answer) {
  for (Call& call : answer.calls) call.arguments = nlohmann::json::parse(call.arguments).dump();
  return answer;
}

TEST(AnswerParser, TaggedCalls) {
  const Answer answer = {
      "I look.",
      "",
      {{"call_0", "weather",
        "{\"city\":\"Zürich\\nor \\\"so\\\"\",\"days\":3,\"more\":{\"x\":[1,null]},"
        "\"now\":true}"},
       {"call_1", "weather", "{\"city\":\"7\"}"}}};
  for (const auto& [form, text] : tagged_texts()) {
    AnswerOptions read = tagged(form);
    EXPECT_EQ(with_values(read_cut_everywhere(read, text)), answer) << text;
    read.stream_arguments = true;
    EXPECT_EQ(with_values(read_cut_everywhere(read, text)), answer) << text;
  }
}

TEST(AnswerParser, TaggedValues) {
  const AnswerOptions qwen = tagged(ToolForm::qwen_xml);
  for (const auto& [key, value, json] :
       std::vector<std::array<const char*, 3>>{{"city", "\n\n", "\"\""},
                                               {"city", "true", "\"true\""},
                                               {"city", "\n {\"a\": 1} \n", "\" {\\\"a\\\": 1} \""},
                                               {"city", "a </param <b>", "\"a </param <b>\""},
                                               {"days", "\n 12 \n", "12"},
                                               {"days", "many", "\"many\""},
                                               {"now", "False", "false"},
                                               {"more", "{'a': True}", "{\"a\":true}"},
                                               {"more", "{\"a\": ", "\"{\\\"a\\\": \""},
                                               {"note", "None", "null"},
                                               {"note", "5", "\"5\""},
                                               {"unknown", "5", "5"},
                                               {"unknown", "\"5\"", "\"\\\"5\\\"\""},
                                               {"unknown", "[1, 2", "\"[1, 2\""}}) {
    const std::string text = std::string("<tool_call><function=weather><parameter=") + key + ">" +
                             value + "</parameter></function></tool_call>";
    const std::string arguments = std::string("{\"") + key + "\": " + json + "}";
    EXPECT_EQ(read_cut_everywhere(qwen, text),
              (Answer{"", "", {{"call_0", "weather", arguments}}}));
  }
  EXPECT_EQ(
      read_cut_everywhere(tagged(ToolForm::dsml_tools),
                          "<｜DSML｜tool_calls><｜DSML｜invoke name=\"f\"><｜DSML｜parameter "
                          "name=\"a\" string=\"true\">5</｜DSML｜parameter><｜DSML｜parameter "
                          "name=\"b\" string=\"false\">5</｜DSML｜parameter></｜DSML｜invoke>"),
      (Answer{"", "", {{"call_0", "f", "{\"a\": \"5\", \"b\": 5}"}}}));
}

TEST(AnswerParser, BrokenTagsStayContent) {
  std::vector<Case> cases;
  for (const char* text :
       {"<tool_call> is a tag", "<tool_call>", "<tool_call><function=>",
        "<tool_call>\n<function=a b>",
        "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</tool_call>",
        "<tool_call>\n<function=f>\n<parameter=a>\n1\n", "<tool_call><function=f><parameter=>1",
        "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>"}) {
    cases.push_back({text, {text, "", {}}});
  }
  check(ToolForm::qwen_xml, cases);
  check(ToolForm::glm_xml, {{"<tool_call> is a tag", {"<tool_call> is a tag", "", {}}},
                            {"<tool_call></tool_call>", {"<tool_call></tool_call>", "", {}}},
                            {"<tool_call>f</tool_call> so", {" so", "", {{"call_0", "f", "{}"}}}},
                            {"<tool_call>f<arg_key>a</arg_key></tool_call>",
                             {"<tool_call>f<arg_key>a</arg_key></tool_call>", "", {}}}});
  check(ToolForm::minimax_xml,
        {{"<minimax:tool_call>\n<invoke name=\"f\">\n</invoke>\n<invoke name=\"g\">\n<para",
          {"\n<invoke name=\"g\">\n<para", "", {{"call_0", "f", "{}"}}}}});
}

TEST(AnswerParser, StreamsArguments) {
  AnswerOptions streamed = options(ToolForm::hermes);
  streamed.stream_arguments = true;
  AnswerParser parser(streamed);
  EXPECT_TRUE(parser.feed("<tool_call>{\"name\": \"add\", ").empty());
  using Kind = AnswerDelta::Kind;
  EXPECT_EQ(parser.feed("\"arguments\": {\"a"),
            (std::vector<AnswerDelta>{{Kind::call, "", 0, "call_0", "add"},
                                      {Kind::arguments, "{\"a", 0, "", ""}}));
  EXPECT_EQ(parser.feed("\": 1"),
            (std::vector<AnswerDelta>{{Kind::arguments, "\": 1", 0, "", ""}}));
  EXPECT_TRUE(parser.finish().empty());
  for (const auto& [form, text] : std::vector<std::pair<ToolForm, const char*>>{
           {ToolForm::hermes, "x <tool_call>{\"name\":\"a\",\"arguments\":{\"b\":{}}}</tool_call>"},
           {ToolForm::llama, "{\"name\":\"add\",\"parameters\":{\"b\":[\"}\"]}}"},
           {ToolForm::mistral_list, "[TOOL_CALLS][{\"arguments\":{\"b\":2},\"name\":\"a\"}]"},
           {ToolForm::mistral_args, "[TOOL_CALLS]a[ARGS]{\"b\": 2}"}}) {
    streamed = options(form);
    const Answer whole = read(streamed, {text});
    EXPECT_EQ(whole.calls.size(), 1u) << text;
    streamed.stream_arguments = true;
    EXPECT_EQ(read_cut_everywhere(streamed, text), whole) << text;
  }
}

// Numbers beyond a double's range are JSON, too.
bool is_object(const std::string& json) {
  try {
    return nlohmann::json::parse(json).is_object();
  } catch (const nlohmann::json::out_of_range&) {
    return json.starts_with('{');
  } catch (const nlohmann::json::parse_error&) {
    return false;
  }
}

TEST(AnswerParser, DamagedTextsLoseNothing) {
  std::vector<std::pair<ToolForm, std::string>> texts = {
      {ToolForm::hermes,
       "<think>a\n</think>b <tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": [1.5, "
       "\"\\u00e9\"]}}\n"
       "</tool_call>\n<tool_call>{\"name\": \"weather\", \"arguments\": {}}</tool_call>é"},
      {ToolForm::llama,
       "{\"name\": \"add\", \"parameters\": {\"a\": 1}}; {\"name\": \"weather\","
       " \"parameters\": {\"b\": [true, null]}}"},
      {ToolForm::pythonic, "[add(a=1, b=\"x\\n\"), weather(c=[1, (2)], d={'e': None})]"},
      {ToolForm::mistral_list,
       "[TOOL_CALLS] [{\"name\": \"add\", \"arguments\": {}, \"id\": \"1\"}]"},
      {ToolForm::mistral_args, "a[TOOL_CALLS]add[CALL_ID]1[ARGS]{\"a\": 1}[TOOL_CALLS]b[ARGS]{}"}};
  for (const auto& [form, text] : tagged_texts()) texts.emplace_back(form, text);
  for (const auto& [form, text] : texts) {
    testing::Mutator mutator(7);
    AnswerOptions held = tagged(form);
    held.form.reasoning = think;
    for (int i = 0; i < (testing::sanitized ? 500 : testing::quick ? 1000 : 3000); ++i) {
      const std::string damaged = mutator.mutate(text).substr(0, 3000);
      std::vector<std::string_view> pieces;
      const auto places = places_to_cut(damaged);
      for (std::size_t from = 0; from + 1 < places.size();) {
        const std::size_t to = std::min(places.size() - 1, from + 1 + mutator.below(9));
        pieces.push_back(std::string_view(damaged).substr(places[from], places[to] - places[from]));
        from = to;
      }
      for (const bool is_streamed : {false, true}) {
        held.stream_arguments = is_streamed;
        const Answer whole = read(held, {damaged});
        ASSERT_EQ(read(held, pieces), whole) << damaged;
        if (is_streamed) continue;
        for (const Call& call : whole.calls) {
          ASSERT_FALSE(call.name.empty());
          // Text that is no UTF-8 is not checked.
          if (is_valid_utf8(damaged)) {
            ASSERT_TRUE(is_object(call.arguments)) << damaged;
          }
        }
      }
    }
  }
}

TEST(AnswerParser, LongTextsTakeLittleTime) {
  // Each would take minutes if texts were read again from the front.
  std::string marks, spaces = "<tool_call>{\"name\":\"a\",\"arguments\":{}}";
  for (int i = 0; i < 100'000; ++i) marks += "<tool_call>{\"";
  spaces += std::string(1'000'000, ' ');
  for (const std::string& text : {marks, spaces}) {
    std::vector<std::string_view> pieces;
    for (std::size_t i = 0; i < text.size(); i += 5)
      pieces.push_back(std::string_view(text).substr(i, 5));
    const Answer answer = read(options(ToolForm::hermes), pieces);
    EXPECT_EQ(answer.calls.size(), text == spaces ? 1u : 0u);
    EXPECT_EQ(answer.content, text == marks ? marks : "");
  }
}

TEST(AnswerForm, ReadFromTemplates) {
  const auto form = [](const char* source) { return server::answer_form(source); };
  EXPECT_EQ(form("{{ messages }}").tools, ToolForm::none);
  EXPECT_EQ(form("<tool_call>\n{\"name\": <function-name>, \"arguments\": <args>}").tools,
            ToolForm::hermes);
  EXPECT_EQ(form("<tool_call><function=x> arguments").tools, ToolForm::none);
  EXPECT_EQ(form("<tool_call><invoke name=x> arguments").tools, ToolForm::none);
  EXPECT_EQ(form("<tool_call><function=x><parameter=y>").tools, ToolForm::qwen_xml);
  EXPECT_EQ(form("<seed:tool_call><function=x><parameter=y>").tools, ToolForm::seed_xml);
  EXPECT_EQ(form("'<tool_call>' + name + '<arg_key>'").tools, ToolForm::glm_xml);
  EXPECT_EQ(form("<minimax:tool_call> arguments").tools, ToolForm::minimax_xml);
  EXPECT_EQ(form("'｜DSML｜' '<' + mark + 'function_calls>'").tools, ToolForm::dsml_functions);
  EXPECT_EQ(form("'｜DSML｜' '<' + mark + 'tool_calls>'").tools, ToolForm::dsml_tools);
  EXPECT_EQ(form("<|start_header_id|> {\"name\": function name, \"parameters\": dictionary").tools,
            ToolForm::llama);
  EXPECT_EQ(form("<|start_header_id|>[func_name1(params_name1=value)] \"parameters\": ").tools,
            ToolForm::pythonic);
  EXPECT_EQ(form("'[TOOL_CALLS]' + name + '[ARGS]'").tools, ToolForm::mistral_args);
  EXPECT_EQ(form("\"[TOOL_CALLS] [\"").tools, ToolForm::mistral_list);
  EXPECT_EQ(form("split('</think>')").reasoning, think);
  EXPECT_TRUE(begins_with_reasoning(form("</think>"), "<|assistant|><think>\n"));
  EXPECT_FALSE(begins_with_reasoning(form("</think>"), "<think>\n\n</think>\n\n"));
  EXPECT_FALSE(begins_with_reasoning(form(""), "<think>"));
}

}  // namespace
}  // namespace coppice::server_test
