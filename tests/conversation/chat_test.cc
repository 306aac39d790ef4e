// The public Chat: messages to an engine's tokens.
#include "chat.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/pair.h"
#include "reference/letters_tokenizer.h"

namespace coppice::testing {
namespace {

constexpr TokenId special = 90;
// Letters only, as the tokenizer has no others: "u" says who speaks.
constexpr const char* jinja =
    "{% if tools %}{{ tools[0].name }}{{ '<|end|>' }}{% endif %}"
    "{% for message in messages %}{{ message.role[0] + message.content + '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'a' }}{% if thinking %}z{% endif %}{% endif %}";

class ChatTest : public ::testing::Test {
 protected:
  void SetUp() override {
    write_file(pair_.path() / "target" / "tokenizer.json", letters_tokenizer(special).dump());
    write_file(pair_.path() / "target" / "chat_template.jinja", jinja);
    engine_.emplace(Engine::load(pair_.options()));
  }
  Chat chat() const { return Chat::of(pair_.path() / "target"); }
  static std::string error_of(const std::function<void()>& body, ErrorKind kind) {
    try {
      body();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind) << error.what();
      return error.what();
    }
    ADD_FAILURE() << "nothing was thrown";
    return "";
  }

  const TinyPair pair_;
  std::optional<Engine> engine_;
};

TEST_F(ChatTest, MessagesBecomeTheTemplatesTokens) {
  const Chat of = chat();
  const std::string messages = R"([{"role": "user", "content": "bc"}])";
  EXPECT_EQ(of.text(messages), "ubc<|end|>a");
  const std::vector<TokenId> tokens = of.tokens(*engine_, messages);
  EXPECT_EQ(tokens, engine_->tokenize("ubc<|end|>a", false));
  EXPECT_EQ(std::ranges::count(tokens, special), 1);
  EXPECT_EQ(engine_->generate(tokens, {}).statistics.prompt_tokens, std::ssize(tokens));
  ChatOptions options;
  options.add_generation_prompt = false;
  EXPECT_EQ(of.text(messages, options), "ubc<|end|>");
  EXPECT_EQ(of.source(), jinja);
}

TEST_F(ChatTest, ForeignTextIsNoSpecialToken) {
  const auto specials = [&](const std::string& messages, const ChatOptions& options = {}) {
    return std::ranges::count(chat().tokens(*engine_, messages, options), special);
  };
  EXPECT_EQ(specials(R"([{"role": "user", "content": "<|end|>"}])"), 1) << "the template's own";
  EXPECT_EQ(specials(R"([{"role": "tool", "content": "<|end|>a<|end|>"}])"), 1);
  EXPECT_EQ(specials(R"([{"role": "assistant", "content": "a<|end|>"}])"), 2)
      << "what the model wrote";
  ChatOptions options;
  options.tools = R"([{"name": "<|end|>"}])";
  EXPECT_EQ(specials(R"([{"role": "user", "content": "b"}])", options), 2);
}

TEST_F(ChatTest, OptionsReachTheTemplate) {
  const std::string messages = R"([{"role": "user", "content": "bc"}])";
  ChatOptions options;
  options.tools = R"([{"name": "tool"}])";
  options.values = R"({"thinking": true})";
  EXPECT_EQ(chat().text(messages, options), "tool<|end|>ubc<|end|>az");
  EXPECT_TRUE(chat().takes_tools());
  EXPECT_TRUE(chat().takes("thinking"));
  EXPECT_FALSE(chat().takes("documents"));
  EXPECT_FALSE(chat().takes("message")) << "it is the template's own";
  ChatOptions goes_on;
  goes_on.continue_final_message = true;
  EXPECT_EQ(chat().text(R"([{"role": "user", "content": "b"},
                            {"role": "assistant", "content": "cd"}])",
                        goes_on),
            "ub<|end|>acd");
}

TEST_F(ChatTest, ATemplateOfOnesOwn) {
  const Chat own = Chat::from_source("{{ messages[0].content }}<|end|>", pair_.path() / "target");
  EXPECT_EQ(own.text(R"([{"role": "user", "content": "b"}])"), "b<|end|>");
  EXPECT_FALSE(own.takes_tools());
  const Chat copy = own;
  EXPECT_EQ(copy.source(), own.source());
}

TEST_F(ChatTest, WhatIsWrongIsSaid) {
  const Chat of = chat();
  const auto says = [&](const std::string& messages, const ChatOptions& options, const char* what) {
    const std::string error =
        error_of([&] { static_cast<void>(of.text(messages, options)); }, ErrorKind::usage);
    EXPECT_NE(error.find(what), std::string::npos) << error;
  };
  const std::string messages = R"([{"role": "user", "content": "b"}])";
  says("[]", {}, "no list of messages");
  says("{", {}, "messages");
  says(R"([{"content": "b"}])", {}, "message 1 has no role");
  says(R"([{"role": "user"}])", {}, "message 1 has no content");
  ChatOptions options;
  options.continue_final_message = true;
  says(messages, options, "continue_final_message: the last message is of the role");
  options = {};
  options.tools = "{}";
  says(messages, options, "tools");
  options = {};
  options.values = "[]";
  says(messages, options, "values");
  options.values = R"({"messages": []})";
  says(messages, options, "values: messages");
  const Chat without = Chat::from_source("{{ messages[0].content }}", pair_.path() / "target");
  options = {};
  options.tools = "[]";
  const std::string error =
      error_of([&] { static_cast<void>(without.text(messages, options)); }, ErrorKind::usage);
  EXPECT_NE(error.find("knows of none"), std::string::npos) << error;
  error_of([&] { static_cast<void>(Chat::from_source("{% if %}", pair_.path() / "target")); },
           ErrorKind::failure);
  error_of([&] { static_cast<void>(Chat::of(pair_.path() / "draft")); }, ErrorKind::failure);
  std::string longer = R"([{"role": "user", "content": ")" + std::string(3 << 20, 'b') + R"("}])";
  error_of([&] { static_cast<void>(of.tokens(*engine_, longer)); }, ErrorKind::usage);
  const Chat silent = Chat::from_source("{% if false %}b{% endif %}", pair_.path() / "target");
  EXPECT_EQ(
      error_of([&] { static_cast<void>(silent.tokens(*engine_, messages)); }, ErrorKind::usage),
      "the chat template makes no text of these messages; say something, or correct the template");
}

}  // namespace
}  // namespace coppice::testing
