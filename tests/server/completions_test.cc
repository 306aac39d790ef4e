// /v1/completions, /tokenize and /detokenize: fields in, answers out.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "client.h"
#include "fake_backend.h"
#include "running_server.h"

namespace coppice::testing {
namespace {

using Json = nlohmann::json;

class Completions : public ::testing::Test {
 protected:
  Reply post(const std::string& body, const std::string& path = "/v1/completions") {
    return ask(server_.port(), "POST", path, body);
  }
  void expect_refused(const std::string& body, const std::string& param) {
    const Reply reply = post(body);
    EXPECT_EQ(reply.status, 400) << body << reply.body;
    EXPECT_EQ(reply.json()["error"]["param"], param) << body << reply.body;
    EXPECT_EQ(reply.json()["error"]["type"], "invalid_request_error") << body;
  }

  FakeBackend backend_;
  RunningServer server_{&backend_, fake_service(), small_limits()};
};

TEST_F(Completions, AnAnswerHasOpenAisShape) {
  const Json json = post(R"({"model": "fake", "prompt": "Once", "max_tokens": 50})").json();
  EXPECT_EQ(json["object"], "text_completion");
  EXPECT_EQ(json["model"], "fake");
  EXPECT_EQ(json["system_fingerprint"], "fp_fake");
  EXPECT_EQ(json["id"].get<std::string>().substr(0, 5), "cmpl-");
  EXPECT_EQ(json["choices"], Json::parse(R"([{"index": 0, "text": "Hello, world", "logprobs": null,
                             "finish_reason": "stop"}])"));
  EXPECT_EQ(json["usage"]["prompt_tokens"], 4);
  EXPECT_EQ(json["usage"]["completion_tokens"], 12);
  EXPECT_EQ(json["usage"]["total_tokens"], 16);
  EXPECT_EQ(json["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
  EXPECT_EQ(json["timings"]["draft_n_accepted"], 4);
  EXPECT_EQ(json["coppice"]["steps"], 2);
}

// As a model's files recommend them, which know nothing of the request.
TEST_F(Completions, DefaultsOfTheFewestTokensAreAtMostTheMost) {
  server::ServiceOptions service = fake_service();
  service.defaults.options.min_new_tokens = 5;
  RunningServer server{&backend_, service, small_limits()};
  const auto least = [&](const std::string& path, const std::string& text) {
    const Reply reply = ask(server.port(), "POST", path, text);
    EXPECT_EQ(reply.status, 200) << reply.body;
    return backend_.last_options().min_new_tokens;
  };
  EXPECT_EQ(least("/v1/completions", R"({"prompt": "x", "max_tokens": 3})"), 3);
  EXPECT_EQ(least("/v1/completions", R"({"prompt": "x", "max_tokens": 9})"), 5);
  EXPECT_EQ(least("/v1/chat/completions",
                  R"({"messages": [{"role": "user", "content": "x"}], "max_tokens": 3})"),
            3);
  const Reply refused = ask(server.port(), "POST", "/v1/completions",
                            R"({"prompt": "x", "max_tokens": 3, "min_tokens": 4})");
  EXPECT_EQ(refused.status, 400) << refused.body;
}

TEST_F(Completions, FieldsReachTheEngine) {
  const Reply reply = post(
      R"({"prompt": [72, 105], "max_tokens": 7, "temperature": 0.5, "top_p": 0.9, "top_k": 40,
          "min_p": 0.05, "repetition_penalty": 1.2, "seed": 7, "stop": ["a", "b"],
          "ignore_eos": true, "logprobs": 3, "user": "me",
          "speculation": {"policy": "chain", "size": 5, "acceptance": "rejection",
                          "lookup": "text", "draft": false}})");
  ASSERT_EQ(reply.status, 200) << reply.body;
  const GenerateOptions options = backend_.last_options();
  EXPECT_EQ(backend_.last_tokens(), (std::vector<TokenId>{72, 105}));
  EXPECT_EQ(options.max_new_tokens, 7);
  EXPECT_EQ(options.sampling.temperature, 0.5);
  EXPECT_EQ(options.sampling.top_p, 0.9);
  EXPECT_EQ(options.sampling.top_k, 40);
  EXPECT_EQ(options.sampling.min_p, 0.05);
  EXPECT_EQ(options.sampling.repetition_penalty, 1.2);
  EXPECT_EQ(options.seed, 7u);
  EXPECT_EQ(options.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(options.ignore_eos);
  EXPECT_TRUE(options.logprobs);
  EXPECT_EQ(std::get<Chain>(options.speculation).length, 5);
  EXPECT_EQ(options.acceptance, Acceptance::rejection);
  EXPECT_EQ(options.lookup, Lookup::text);
  EXPECT_FALSE(options.use_draft);
  // OpenAI's 0, which no library takes, is the most probable token alone.
  ASSERT_EQ(post(R"({"prompt": "x", "top_p": 0})").status, 200);
  EXPECT_GT(backend_.last_options().sampling.top_p, 0.0);
  EXPECT_LT(backend_.last_options().sampling.top_p, 1e-6);
}

TEST_F(Completions, ASeedRepeatsItsText) {
  post(R"({"prompt": "x", "seed": -1})");
  EXPECT_EQ(backend_.last_options().acceptance, Acceptance::coupled);
  EXPECT_EQ(backend_.last_options().seed, ~std::uint64_t{0});
  post(R"({"prompt": "x"})");
  const std::uint64_t first = backend_.last_options().seed;
  EXPECT_EQ(backend_.last_options().acceptance, Acceptance::automatic);
  post(R"({"prompt": "x"})");
  EXPECT_NE(backend_.last_options().seed, first);
}

TEST_F(Completions, WrongFieldsAreNamed) {
  for (const auto& [body, param] : std::vector<std::pair<const char*, const char*>>{
           {R"({})", "prompt"},
           {R"({"prompt": 5})", "prompt"},
           {R"({"prompt": []})", "prompt"},
           {R"({"prompt": ""})", "prompt"},
           {R"({"prompt": [1, "a"]})", "prompt"},
           {R"({"prompt": [1, 256]})", "prompt"},
           {R"({"prompt": [1.5]})", "prompt"},
           {R"({"prompt": "x", "max_tokens": -1})", "max_tokens"},
           {R"({"prompt": "x", "max_tokens": "9"})", "max_tokens"},
           {R"({"prompt": "x", "max_tokens": 1e30})", "max_tokens"},
           {R"({"prompt": "x", "temperature": -0.1})", "temperature"},
           {R"({"prompt": "x", "temperature": "hot"})", "temperature"},
           {R"({"prompt": "x", "top_p": 1.5})", "top_p"},
           {R"({"prompt": "x", "n": 0})", "n"},
           {R"({"prompt": "x", "n": 1000})", "n"},
           {R"({"prompt": "x", "stop": 5})", "stop"},
           {R"({"prompt": "x", "stop": ["a", 5]})", "stop"},
           {R"({"prompt": "x", "stream": "yes"})", "stream"},
           {R"({"prompt": "x", "stream_options": {"include_usage": true}})", "stream_options"},
           {R"({"prompt": "x", "logprobs": 21})", "logprobs"},
           {R"({"prompt": "x", "best_of": 3})", "best_of"},
           {R"({"prompt": "x", "suffix": "y"})", "suffix"},
           {R"({"prompt": "x", "best": 3})", "best"},
           {R"({"prompt": "x", "speculation": 5})", "speculation"},
           {R"({"prompt": "x", "speculation": {"policy": "magic"}})", "speculation.policy"},
           {R"({"prompt": "x", "speculation": {"size": 0}})", "speculation.size"},
           {R"({"prompt": "x", "speculation": {"depth": 1}})", "speculation.depth"},
           {R"({"prompt": "x", "response_format": {"type": "xml"}})", "response_format.type"},
           {R"({"prompt": "x", "response_format": {"type": "json_schema"}})",
            "response_format.json_schema"},
           {R"({"prompt": "x", "response_format": {"type": "json_schema",
                "json_schema": {"schema": {"type": "nothing"}}}})",
            "response_format"},
           {R"({"prompt": "x", "grammar": "no rule"})", "response_format"},
           {R"({"prompt": "x", "grammar": "root ::= \"a\"", "json_schema": {}})", "json_schema"}}) {
    expect_refused(body, param);
  }
}

TEST_F(Completions, BrokenJsonIsRefusedWhateverItIs) {
  const std::string deep = std::string(100000, '[');
  for (const std::string& body :
       {std::string("{"), std::string("[]"), std::string("5"), std::string("\"a\""),
        std::string("{\"prompt\": \"\xff\"}"), std::string("{\"prompt\": \"\\ud800\"}"),
        std::string("{\"prompt\": 1e999}"), "{\"prompt\": " + deep, std::string(1, '\0'),
        "{\"a\": " + std::string(200, '[') + std::string(200, ']') + "}"}) {
    const Reply reply = post(body);
    EXPECT_EQ(reply.status, 400) << body.substr(0, 40);
    EXPECT_TRUE(reply.json()["error"]["message"].is_string());
  }
  std::string members = "{\"prompt\": \"x\"";
  for (int i = 0; i < 2000; ++i) members += ",\"a" + std::to_string(i) + "\":0";
  EXPECT_EQ(post(members + "}").status, 400);
}

TEST_F(Completions, AnotherModelIsNotFound) {
  const Reply reply = post(R"({"model": "gpt-5", "prompt": "x"})");
  EXPECT_EQ(reply.status, 404);
  EXPECT_EQ(reply.json()["error"]["code"], "model_not_found");
}

TEST_F(Completions, TooLongAPromptIsRefused) {
  const Reply reply = post(R"({"prompt": ")" + std::string(5000, 'a') + "\"}");
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(reply.json()["error"]["code"], "context_length_exceeded");
}

TEST_F(Completions, WhatTheEngineRefusesIsSaid) {
  backend_.fails_with = "tree: too large";
  for (const char* body : {R"({"prompt": "x"})", R"({"prompt": "x", "stream": true})"}) {
    const Reply reply = post(body);
    EXPECT_EQ(reply.status, 400);
    EXPECT_EQ(reply.json()["error"]["message"], "tree: too large");
  }
}

TEST_F(Completions, AStreamAddsUpToTheAnswer) {
  for (const char* usage : {"", R"(, "stream_options": {"include_usage": true})"}) {
    const Reply reply =
        post(std::string(R"({"prompt": "x", "max_tokens": 50, "stream": true)") + usage + "}");
    ASSERT_TRUE(reply.whole);
    EXPECT_EQ(reply.headers.at("content-type"), "text/event-stream");
    const std::vector<std::string> events = reply.events();
    ASSERT_GT(events.size(), 3u);
    EXPECT_EQ(events.back(), "[DONE]");
    std::string text, finish;
    bool has_usage = false;
    for (std::size_t i = 0; i + 1 < events.size(); ++i) {
      const Json json = Json::parse(events[i]);
      EXPECT_EQ(json["object"], "text_completion");
      if (json.contains("usage")) {
        EXPECT_EQ(i + 2, events.size());
        EXPECT_TRUE(json["choices"].empty());
        EXPECT_EQ(json["usage"]["completion_tokens"], 12);
        has_usage = true;
        continue;
      }
      text += json["choices"][0]["text"].get<std::string>();
      if (json["choices"][0]["finish_reason"].is_string()) {
        finish = json["choices"][0]["finish_reason"];
        EXPECT_TRUE(json.contains("timings"));
      }
    }
    EXPECT_EQ(text, backend_.answer);
    EXPECT_EQ(finish, "stop");
    EXPECT_EQ(has_usage, *usage != '\0');
  }
}

TEST_F(Completions, PromptsAndSamplesAreChoicesInOrder) {
  const Json json =
      post(R"({"prompt": ["one", "two"], "n": 2, "echo": true, "max_tokens": 50})").json();
  ASSERT_EQ(json["choices"].size(), 4u);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(json["choices"][i]["index"], i);
    EXPECT_EQ(json["choices"][i]["text"], std::string(i < 2 ? "one" : "two") + "Hello, world");
  }
  EXPECT_EQ(json["usage"]["prompt_tokens"], 6);
  EXPECT_EQ(json["usage"]["completion_tokens"], 48);
}

TEST_F(Completions, LogprobsNameTokensAndPlaces) {
  backend_.answer = "abc";
  const Json json = post(R"({"prompt": "x", "logprobs": 1})").json()["choices"][0]["logprobs"];
  EXPECT_EQ(json["tokens"], Json::parse(R"(["a", "b", "c"])"));
  EXPECT_EQ(json["token_logprobs"], Json::parse("[-0.5, -0.5, -0.5]"));
  EXPECT_EQ(json["text_offset"], Json::parse("[0, 1, 2]"));
  EXPECT_EQ(json["top_logprobs"][1], Json::parse(R"({"b": -0.5})"));
}

TEST_F(Completions, AnEchoedPromptHasLogprobsToo) {
  backend_.answer = "ab";
  const std::string body = R"({"prompt": "xyz", "echo": true, "logprobs": 1, "max_tokens": 5)";
  const Json choice = post(body + "}").json()["choices"][0];
  EXPECT_EQ(choice["text"], "xyzab");
  EXPECT_EQ(choice["logprobs"]["tokens"], Json::parse(R"(["x", "y", "z", "a", "b"])"));
  EXPECT_EQ(choice["logprobs"]["token_logprobs"], Json::parse("[null, -1.0, -1.0, -0.5, -0.5]"));
  EXPECT_EQ(choice["logprobs"]["text_offset"], Json::parse("[0, 1, 2, 3, 4]"));
  EXPECT_EQ(choice["logprobs"]["top_logprobs"][0], nullptr);
  std::string text;
  Json values = Json::array();
  for (const std::string& event : post(body + R"(, "stream": true})").events()) {
    if (event == "[DONE]") continue;
    const Json one = Json::parse(event)["choices"][0];
    text += one["text"];
    for (const Json& value : one["logprobs"]["token_logprobs"]) values.push_back(value);
  }
  EXPECT_EQ(text, "xyzab");
  EXPECT_EQ(values, choice["logprobs"]["token_logprobs"]);
}

TEST_F(Completions, ConstraintsAreBuiltFromEveryForm) {
  using constraints::ConstraintSource;
  using Kind = ConstraintSource::Kind;
  const std::vector<std::pair<const char*, ConstraintSource>> forms = {
      {R"("response_format": {"type": "json_object"})", {Kind::json, {}}},
      {R"("response_format": {"type": "json_schema", "json_schema": {"name": "a", "strict": true,
           "schema": {"type": "object", "properties": {"b": {}, "a": {}}}}})",
       {Kind::json_schema, {R"({"type":"object","properties":{"b":{},"a":{}}})"}}},
      {R"("json_schema": {"type": "null"})", {Kind::json_schema, {R"({"type":"null"})"}}},
      {R"("grammar": "root ::= \"a\"")", {Kind::grammar, {"root ::= \"a\""}}},
      {R"("structured_outputs": {"regex": "[a-z]+"})", {Kind::regex, {"[a-z]+"}}},
      {R"("structured_outputs": {"choice": ["a", "b"]})", {Kind::choice, {"a", "b"}}}};
  for (const auto& [field, source] : forms) {
    EXPECT_EQ(post(std::string(R"({"prompt": "x", )") + field + "}").status, 200) << field;
    EXPECT_TRUE(backend_.last_constraint() == source) << field;
  }
}

TEST_F(Completions, TokensAreMadeAndUnmade) {
  EXPECT_EQ(post(R"({"content": "Hi"})", "/tokenize").json()["tokens"], Json::parse("[72, 105]"));
  EXPECT_EQ(post(R"({"prompt": "Hi", "with_pieces": true})", "/tokenize").json()["tokens"][0],
            Json::parse(R"({"id": 72, "piece": "H"})"));
  EXPECT_EQ(post(R"({"tokens": [72, 105]})", "/detokenize").json()["content"], "Hi");
  EXPECT_EQ(post(R"({"tokens": []})", "/detokenize").json()["content"], "");
  EXPECT_EQ(post(R"({"tokens": [999]})", "/detokenize").status, 400);
  EXPECT_EQ(post(R"({})", "/tokenize").status, 400);
}

}  // namespace
}  // namespace coppice::testing
