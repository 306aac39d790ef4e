// A conversation held turn by turn and the same one saved and read again: the same tokens.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/command_runs.h"
#include "engine/endless_pair.h"
#include "reference/letters_tokenizer.h"

namespace coppice::testing {
namespace {

using Json = nlohmann::json;

class SavedChat : public Cli {
 protected:
  std::string written(const std::string& name, const std::string& text) const {
    std::ofstream(folder(name.c_str()), std::ios::binary) << text;
    return folder(name.c_str());
  }
  /// A model that writes letters, with this tokenizer file and template.
  void make_model(const std::string& tokenizer_file, const std::string& tokenizer,
                  const std::string& chat_template) const {
    TinyModel model = endless();
    model.logit_scale = 3.0;
    std::filesystem::remove_all(folder("model"));
    write_tiny_model(folder("model"), model);
    written("model/" + tokenizer_file, tokenizer);
    written("model/chat_template.jinja", chat_template);
    written("model/tokenizer_config.json", R"({"bos_token": "<s>"})");
  }
  Json generated(const Json& messages, const std::string& more = "") const {
    const std::string list = written("list.json", messages.dump());
    const Result r = run("generate --target '" + folder("model") +
                         "' --draft none --device cpu --threads 1 --format json --temperature 0 "
                         "--max-new-tokens 6 --messages '" +
                         list + "' " + more);
    EXPECT_EQ(r.code, 0) << r.err;
    return r.code == 0 ? Json::parse(r.out) : Json();
  }
  struct Talk {
    Json said;                       ///< as saved
    std::vector<int> prompt_tokens;  ///< by turn
    std::string out;
  };
  Talk talk(const std::vector<std::string>& messages) const {
    std::string lines;
    for (const std::string& message : messages) lines += message + "\n/stats\n";
    const std::string saved = folder("saved.json");
    const Result r = run("chat --target '" + folder("model") +
                         "' --draft none --device cpu --threads 1 --temperature 0 "
                         "--max-new-tokens 6 <'" +
                         written("lines", lines + "/save " + saved + "\n") + "'");
    EXPECT_EQ(r.code, 0) << r.err;
    Talk talk;
    talk.said = Json::parse(slurp(saved));
    talk.out = r.out;
    for (std::size_t at = 0; (at = r.err.find("new after ", at)) != r.err.npos; at += 10) {
      talk.prompt_tokens.push_back(std::stoi(r.err.substr(at + 10)));
    }
    EXPECT_EQ(r.err.find("computed again"), std::string::npos) << r.err;
    return talk;
  }
  /// Every answer is the one that the saved conversation before it leads to.
  void expect_same_when_read_again(const Talk& held, std::size_t turns) const {
    ASSERT_EQ(held.said.size(), 2 * turns);
    ASSERT_EQ(held.prompt_tokens.size(), turns);
    for (std::size_t turn = 0; turn < turns; ++turn) {
      Json before = held.said;
      before.erase(before.begin() + static_cast<std::ptrdiff_t>(2 * turn + 1), before.end());
      const Json again = generated(before);
      EXPECT_EQ(again["prompt_tokens"], held.prompt_tokens[turn]) << "turn " << turn;
      // Its special tokens are not shown, but saved.
      std::string shown = held.said[2 * turn + 1]["content"];
      for (const std::string special : {"<|end|>", "<s>"}) {
        for (std::size_t at; (at = shown.find(special)) != shown.npos;) {
          shown.erase(at, special.size());
        }
      }
      EXPECT_EQ(again["text"], shown) << "turn " << turn;
    }
  }
};

constexpr const char* plain_turns =
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}{{ 'u' + m.content + 'b' }}"
    "{% else %}{{ m.content + 'e' }}{% endif %}{% endfor %}";
constexpr const char* marked_turns =
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}{{ m.content + 'b' }}"
    "{% else %}{{ m.content + '</s>' }}{% endif %}{% endfor %}";

TEST_F(SavedChat, LaterTurnsHaveNoSpaceOfTheTokenizers) {
  const std::vector<std::pair<std::string, std::string>> tokenizers = {
      {"tokenizer.json", letters_tokenizer(-1, metaspace("first")).dump()},
      {"tokenizer.json", letters_tokenizer(-1, metaspace("always")).dump()},
      {"tokenizer.json", letters_tokenizer(-1, nullptr, prepend_mark()).dump()},
      {"tokenizer.model", letters_model(-1)}};
  for (std::size_t i = 0; i < tokenizers.size(); ++i) {
    for (const char* turns : {plain_turns, marked_turns}) {
      SCOPED_TRACE(std::to_string(i) + turns);
      make_model(tokenizers[i].first, tokenizers[i].second, turns);
      expect_same_when_read_again(talk({"hello", "you there", " and", "a"}), 4);
    }
  }
}

TEST_F(SavedChat, AnswersKeepTheirSpecialTokens) {
  make_model("tokenizer.json", letters_tokenizer(-1, metaspace("first")).dump(), plain_turns);
  const Json first = generated(Json::parse(R"([{"role": "user", "content": "hello"}])"));
  const TokenId special = first["tokens"][2];
  ASSERT_GT(special, 3);
  const std::vector<std::pair<std::string, std::string>> tokenizers = {
      {"tokenizer.json", letters_tokenizer(special, metaspace("first")).dump()},
      {"tokenizer.json", letters_tokenizer(special, metaspace("first"), nullptr, true).dump()}};
  for (std::size_t i = 0; i < tokenizers.size(); ++i) {
    SCOPED_TRACE(i);
    make_model(tokenizers[i].first, tokenizers[i].second, plain_turns);
    const Talk held = talk({"hello", "you", "there"});
    const std::string answer = held.said[1]["content"];
    EXPECT_NE(answer.find("<|end|>"), std::string::npos) << answer;
    EXPECT_EQ(held.out.find("<|end|>") != std::string::npos, i == 1) << "shown";
    if (i == 0) expect_same_when_read_again(held, 3);
    // What a user types is text, and so it stays when it is read again.
    const int one = generated({{{"role", "user"}, {"content", "x"}}})["prompt_tokens"];
    const int typed = generated({{{"role", "user"}, {"content", "<|end|>"}}})["prompt_tokens"];
    EXPECT_GT(typed, one + 1);
  }
}

// What was taken back held the template's special tokens. A user who types its very text is given
// letters.
TEST_F(SavedChat, TypedTextDoesNotGoOnFromWhatWasTakenBack) {
  make_model("tokenizer.json", letters_tokenizer(-1, metaspace("first")).dump(),
             "{% for m in messages %}{% if m.role == 'user' %}<s>{{ m.content }}</s>{% else %}"
             "{{ m.content }}{% endif %}{% endfor %}");
  const std::string answer = talk({"hello"}).said[1]["content"];
  ASSERT_NE(answer, "");
  const std::string typed = "hello</s>" + answer;
  const int alone = generated({{{"role", "user"}, {"content", typed}}})["prompt_tokens"];
  EXPECT_EQ(talk({typed}).prompt_tokens.back(), alone);
  EXPECT_EQ(talk({"hello", "/undo", typed}).prompt_tokens.back(), alone);
}

TEST_F(SavedChat, ContinuesTheLastMessage) {
  make_model("tokenizer.model", letters_model(-1), marked_turns);
  const Json user = {{"role", "user"}, {"content", "hello"}};
  const Json whole = generated(Json::array({user}));
  const std::string text = whole["text"];
  std::size_t bytes = 0;
  for (int begun = 1; begun < 5; ++begun) {
    SCOPED_TRACE(begun);
    bytes += static_cast<std::size_t>(utf8_sequence(text.substr(bytes)));
    ASSERT_LT(bytes, text.size()) << text;
    const Json answer = {{"role", "assistant"}, {"content", text.substr(0, bytes)}};
    const Json rest = generated(Json::array({user, answer}), "--continue-message");
    EXPECT_EQ(rest["prompt_tokens"], whole["prompt_tokens"].get<int>() + begun);
    EXPECT_EQ(rest["text"].get<std::string>().rfind(text.substr(bytes), 0), 0u);
    EXPECT_EQ(generated(Json::array({user, answer}),
                        "--continue-message --no-template --no-bos")["prompt_tokens"],
              1 + 5 + begun);
    const Json blocks = {{"role", "assistant"},
                         {"content", {{{"type", "text"}, {"text", text.substr(0, bytes)}}}}};
    make_model("tokenizer.model", letters_model(-1),
               "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}{{ m.content + 'b' "
               "}}{% else %}{{ m.content[0].text + '</s>' }}{% endif %}{% endfor %}");
    EXPECT_EQ(generated(Json::array({user, blocks}), "--continue-message")["text"], rest["text"]);
    make_model("tokenizer.model", letters_model(-1), marked_turns);
  }
}

// Spaces at the message's end stay if the template keeps them, as with transformers.
TEST_F(SavedChat, ContinuesAsTheTemplateTrims) {
  const Json list = Json::parse(
      R"([{"role": "user", "content": "x"}, {"role": "assistant", "content": " a b  "}])");
  const auto prompt_tokens = [&](const std::string& content) {
    make_model("tokenizer.model", letters_model(-1),
               "{% for m in messages %}{{ '<s>' + " + content + " + '</s>' }}{% endfor %}");
    return generated(list, "--continue-message")["prompt_tokens"].get<int>();
  };
  // <s>, the mark, x, </s>, <s>, the mark, and the message.
  EXPECT_EQ(prompt_tokens("m.content"), 6 + 6);
  EXPECT_EQ(prompt_tokens("(m.content | trim)"), 6 + 3);
  EXPECT_EQ(prompt_tokens("m.content.rstrip()"), 6 + 4);
  EXPECT_EQ(prompt_tokens("m.content.lstrip()"), 6 + 5);
  // An empty message is continued from its beginning.
  const Json none =
      Json::parse(R"([{"role": "user", "content": "x"}, {"role": "assistant", "content": ""}])");
  EXPECT_EQ(generated(none, "--continue-message")["prompt_tokens"], 5);
}

TEST_F(SavedChat, RefusesToContinueInOneLine) {
  make_model("tokenizer.model", letters_model(-1), plain_turns);
  const std::string command = "generate --target '" + folder("model") + "' --draft none ";
  const auto list = [&](const std::string& json) {
    return "--messages '" + written("list.json", json) + "' --continue-message";
  };
  const std::string answered =
      R"([{"role": "user", "content": "x"}, {"role": "assistant", "content": "yes"}])";
  expect_error(command + list(R"([{"role": "user", "content": "x"}])"), 2,
               "the last message is of the role 'user'");
  expect_error(command + list(R"([{"role": "assistant", "tool_calls": []}])"), 2,
               "the last message has no text");
  expect_error(command + "--prompt x --continue-message", 2, "needs --messages");
  expect_error(command + "--chat --prompt x --continue-message", 2, "needs --messages");
  for (const char* loses : {"{{ bos_token }}", "{{ messages[1].content[1:] }}",
                            "{{ messages[1].content | lower | replace('y', '') }}"}) {
    make_model("tokenizer.model", letters_model(-1), loses);
    expect_error(command + list(answered), 1,
                 "--continue-message: the chat template does not write the last message as it is");
  }
}

}  // namespace
}  // namespace coppice::testing
