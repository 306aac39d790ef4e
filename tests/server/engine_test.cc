// The server over the shipped pair: its texts are the library's.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/stopwatch.h"
#include "client.h"
#include "engine/pair.h"
#include "running_server.h"
#include "server/engine_backend.h"

namespace coppice::testing {
namespace {

using Json = nlohmann::json;

class Served : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    EngineOptions options = shipped_options();
    options.max_sequences = 8;
    options.cost_cache = false;
    engine_ = std::make_unique<Engine>(Engine::load(options));
    backend_ = server::make_engine_backend(*engine_, {});
  }
  static void TearDownTestSuite() {
    backend_.reset();
    engine_.reset();
  }

  // Sizes are fixed, so that texts repeat.
  static server::ServiceOptions service() {
    server::ServiceOptions options = fake_service();
    options.defaults.model = "stories";
    options.defaults.options.speculation = Dyspec{8};
    options.max_queue = 64;
    return options;
  }
  static server::HttpLimits limits() {
    server::HttpLimits limits;
    limits.header_seconds = limits.body_seconds = limits.idle_seconds = 60.0;
    return limits;
  }
  Reply post(const std::string& body, const std::string& path = "/v1/completions") {
    return ask(server_.port(), "POST", path, body);
  }
  static GenerateOptions library_options(std::uint64_t seed) {
    GenerateOptions options;
    options.max_new_tokens = 24;
    options.sampling.temperature = 1.0;
    options.seed = seed;
    options.acceptance = Acceptance::coupled;
    options.speculation = Dyspec{8};
    return options;
  }

  static std::unique_ptr<Engine> engine_;
  static std::unique_ptr<server::Backend> backend_;
  RunningServer server_{backend_.get(), service(), limits()};
};
std::unique_ptr<Engine> Served::engine_;
std::unique_ptr<server::Backend> Served::backend_;

// What an engine did before it was served, such as a warm-up, is no traffic.
TEST_F(Served, CountsBeginWithTheServer) {
  EngineOptions options = shipped_options();
  options.cost_cache = false;
  Engine engine = Engine::load(options);  // which one backend observes
  (void)engine.generate("The old captain", library_options(4));
  const auto backend = server::make_engine_backend(engine, {});
  const EngineStatistics fresh = backend->statistics();
  for (const std::int64_t count : {fresh.passes, fresh.steps, fresh.new_tokens, fresh.drafted,
                                   fresh.accepted, fresh.preempted}) {
    EXPECT_EQ(count, 0);
  }
  EXPECT_TRUE(fresh.drafted_by_depth.empty());
  EXPECT_TRUE(fresh.accepted_by_depth.empty());
  const EngineStatistics before = engine.statistics();
  const Generation text = engine.generate("The old captain", library_options(5));
  const EngineStatistics after = engine.statistics(), served = backend->statistics();
  EXPECT_EQ(served.new_tokens, static_cast<std::int64_t>(text.tokens.size()));
  EXPECT_EQ(served.drafted, after.drafted - before.drafted);
  EXPECT_EQ(served.steps, after.steps - before.steps);
  std::int64_t drafted = 0;
  for (const std::int64_t at_depth : served.drafted_by_depth) drafted += at_depth;
  EXPECT_EQ(drafted, served.drafted);
}

TEST_F(Served, TextsAreTheLibrarys) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    const Generation text = engine_->generate("The old captain", library_options(seed));
    const std::string body =
        R"({"prompt": "The old captain", "max_tokens": 24, "seed": )" + std::to_string(seed);
    const Json json = post(body + "}").json();
    EXPECT_EQ(json["choices"][0]["text"], text.text);
    EXPECT_EQ(json["usage"]["completion_tokens"], text.tokens.size());
    EXPECT_EQ(json["usage"]["prompt_tokens"], text.statistics.prompt_tokens);
    std::string streamed;
    for (const std::string& event : post(body + R"(, "stream": true})").events()) {
      if (event != "[DONE]") streamed += Json::parse(event)["choices"][0]["text"];
    }
    EXPECT_EQ(streamed, text.text);
  }
}

TEST_F(Served, ManyAtOnceWriteWhatEachWritesAlone) {
  std::vector<Reply> replies(16);
  {
    std::vector<std::jthread> clients;
    for (std::size_t i = 0; i < replies.size(); ++i) {
      clients.emplace_back([&, i] {
        replies[i] = post(R"({"prompt": "In the garden", "max_tokens": 24, "seed": )" +
                          std::to_string(i) + "}");
      });
    }
  }
  for (std::size_t i = 0; i < replies.size(); ++i) {
    EXPECT_EQ(replies[i].json()["choices"][0]["text"],
              engine_->generate("In the garden", library_options(i)).text)
        << i << replies[i].body;
  }
}

TEST_F(Served, SamplesAreStreamsOfOneSeed) {
  const Json json =
      post(R"({"prompt": ["One day", "At night"], "n": 2, "max_tokens": 24, "seed": 9})").json();
  for (std::size_t i = 0; i < 4; ++i) {
    GenerateOptions options = library_options(9);
    options.stream = i;
    EXPECT_EQ(json["choices"][i]["text"],
              engine_->generate(i < 2 ? "One day" : "At night", options).text);
  }
}

TEST_F(Served, AConstraintHolds) {
  const Json json =
      post(R"({"messages": [{"role": "user", "content": "Hello"}], "seed": 4, "max_tokens": 60,
               "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema":
               {"type": "object", "properties": {"good": {"type": "boolean"}},
                "required": ["good"], "additionalProperties": false}}}})",
           "/v1/chat/completions")
          .json();
  const Json answer = Json::parse(json["choices"][0]["message"]["content"].get<std::string>());
  EXPECT_TRUE(answer["good"].is_boolean()) << json;
  EXPECT_EQ(json["choices"][0]["finish_reason"], "stop");
}

TEST_F(Served, TreesAreWhatTheTextIsMadeOf) {
  const std::vector<std::string> events =
      post(R"({"prompt": "The old captain", "max_tokens": 24, "seed": 5, "stream": true,
               "speculation": {"trees": true}})")
          .events();
  std::string text, drawn;
  int trees = 0;
  for (const std::string& event : events) {
    if (event == "[DONE]") continue;
    const Json json = Json::parse(event);
    text += json["choices"][0]["text"].get<std::string>();
    if (!json.contains("coppice") || !json["coppice"].contains("tree")) continue;
    const Json& tree = json["coppice"]["tree"];
    // The first root is the token that came with the prompt.
    if (++trees == 1) drawn += tree["nodes"][0]["text"];
    int accepted = 0;
    for (std::size_t i = 0; i < tree["nodes"].size(); ++i) {
      const Json& node = tree["nodes"][i];
      EXPECT_LT(node["parent"], static_cast<int>(i));
      EXPECT_EQ(node["parent"] == -1, i == 0);
      if (!node["accepted"]) continue;
      ++accepted;
      if (i > 0) drawn += node["text"];
    }
    EXPECT_EQ(tree["accepted_length"], accepted);
    drawn += tree["bonus"]["text"];
  }
  EXPECT_GT(trees, 0);
  EXPECT_EQ(drawn.substr(0, text.size()), text);
}

// A text that nobody reads any more leaves its place to others.
TEST_F(Served, AClientThatLeavesFreesItsText) {
  const std::string endless =
      R"({"prompt": "On and on", "max_tokens": 480, "ignore_eos": true, "stream": true})";
  Client client(server_.port());
  client.send(request_text("POST", "/v1/completions", endless));
  EXPECT_NE(client.read_some().find("data: "), std::string::npos);
  EXPECT_EQ(engine_->statistics().running, 1);
  client.close();
  const double start = now_seconds();
  while (engine_->statistics().running > 0 && now_seconds() - start < 20.0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(engine_->statistics().running, 0);
  bool cancelled = false;
  for (int i = 0; i < 2000 && !cancelled; ++i) {
    for (const std::string& line : server_.log()) {
      const Json json = Json::parse(line);
      cancelled = cancelled || json.value("finish_reason", "") == "cancelled";
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_TRUE(cancelled);
}

TEST_F(Served, ACachedPromptIsCounted) {
  const std::string body =
      R"({"prompt": "A prompt that is asked for twice in a row", "max_tokens": 4, "seed": 1})";
  post(body);
  const Json usage = post(body).json()["usage"];
  EXPECT_GT(usage["prompt_tokens_details"]["cached_tokens"], 4);
}

TEST_F(Served, WhatTheEngineCannotDoIsABadRequest) {
  const Reply reply = post(R"({"prompt": "x", "speculation": {"policy": "dyspec", "size": 2000}})");
  EXPECT_EQ(reply.status, 400);
  EXPECT_NE(reply.json()["error"]["message"].get<std::string>().find("tree"), std::string::npos);
  EXPECT_EQ(post(R"({"prompt": ")" + std::string(4000, 'x') + "\"}").status, 400);
  for (const auto& [constraint, what] : std::vector<std::pair<std::string, const char*>>{
           {R"("structured_outputs": {"regex": ""})", "the empty text alone"},
           {R"("json_schema": {"propertes": {}})", "did you mean 'properties'?"}}) {
    const Reply refused = post(R"({"prompt": "x", )" + constraint + "}");
    EXPECT_EQ(refused.status, 400) << constraint;
    EXPECT_NE(refused.json()["error"]["message"].get<std::string>().find(what), std::string::npos)
        << constraint;
  }
}

// The probabilities that writing the same tokens has, one after another.
TEST_F(Served, APromptsLogprobsAreThoseOfWritingIt) {
  const std::vector<TokenId> prompt = engine_->tokenize("The old captain sat by the fire");
  const std::vector<TokenLogprob> given = backend_->prompt_logprobs(prompt, 3);
  ASSERT_EQ(given.size(), prompt.size());
  for (std::size_t i = 1; i < prompt.size(); ++i) {
    GenerateOptions options = library_options(1);
    options.max_new_tokens = 1;
    options.logprobs = true;
    options.top_logprobs = 3;
    options.logit_bias = {};
    options.constraint = {};
    const std::span<const TokenId> before(prompt.data(), i);
    const std::vector<TokenLogprob> written = engine_->generate(before, options).logprobs;
    ASSERT_EQ(given[i].top.size(), 3u);
    for (std::size_t k = 0; k < 3; ++k) {
      EXPECT_EQ(given[i].top[k].first, written[0].top[k].first) << i;
      EXPECT_NEAR(given[i].top[k].second, written[0].top[k].second, 1e-5) << i;
    }
    EXPECT_EQ(given[i].token, prompt[i]);
    EXPECT_LT(given[i].logprob, 0.0);
    for (const auto& [token, logprob] : given[i].top) {
      EXPECT_TRUE(token != prompt[i] || logprob == given[i].logprob);
    }
  }
  engine_->drop_cache();
  const CacheStatistics cache = engine_->cache();
  EXPECT_EQ(cache.target_free, cache.target_slots);
}

TEST_F(Served, BiasesAndPenaltiesAreObeyed) {
  const Json plain = post(R"({"prompt": "Once", "max_tokens": 8, "temperature": 0})").json();
  GenerateOptions greedy;
  greedy.max_new_tokens = 1;
  const TokenId first = engine_->generate("Once", greedy).tokens[0];
  const Json biased = post(R"({"prompt": "Once", "max_tokens": 8, "temperature": 0,
                               "logit_bias": {")" +
                           std::to_string(first) + R"(": -100}})")
                          .json();
  EXPECT_NE(biased["choices"][0]["text"], plain["choices"][0]["text"]);
  EXPECT_EQ(post(R"({"prompt": "x", "logit_bias": {"-1": 1}})").json()["error"]["param"],
            "logit_bias");
}

}  // namespace
}  // namespace coppice::testing
