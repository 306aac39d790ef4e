#include "conversation/answer_text.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "chat/json.h"
#include "reference/letters_tokenizer.h"
#include "reference/tokenizer_file.h"

namespace coppice::conversation {
namespace {

using testing::letters_tokenizer;
using Ids = std::vector<TokenId>;

constexpr TokenId a = 4, b = 5, mark = 3, end = 40;

Ids tokens_of(const Tokenizer& tokenizer, const chat::Text& text, TokenId before) {
  const std::vector<chat::Segment> segments = text.segments();
  std::vector<TextPart> parts;
  for (const chat::Segment& one : segments) parts.push_back({one.text, one.foreign});
  return tokenizer.encode(parts, before);
}

const chat::Text& content_of(const chat::Value& message) {
  return message.as_dict().named("content")->text();
}

/// The message as a file brings it back.
chat::Value reread(const chat::Value& message) {
  return owned_answer(chat::parse_json(chat::to_json(message).bytes(), "file", true), "file");
}

std::string spelt_in_letters(const std::string& text, Ids& tokens, const Tokenizer& tokenizer) {
  const Ids more = tokenizer.encode_typed(text, Tokenizer::after_text);
  tokens.insert(tokens.end(), more.begin(), more.end());
  return text;
}

// Whether the file shows its added token or not, and whatever it puts before words.
TEST(AnswerText, EncodesToTheAnswersTokens) {
  const std::vector<std::pair<nlohmann::json, nlohmann::json>> kinds = {
      {nullptr, testing::spaces_to_marks()},
      {testing::metaspace("first"), nullptr},
      {testing::metaspace("always"), nullptr},
      {nullptr, testing::prepend_mark()}};
  for (const bool shown : {false, true}) {
    for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
      SCOPED_TRACE(kind);
      const auto tokenizer =
          testing::load_json(letters_tokenizer(end, kinds[kind].first, kinds[kind].second, shown));
      const bool prefixes = kind >= 2;
      // Behind an added token a word has the mark that the tokenizer would put there.
      const Ids word = prefixes ? Ids{mark, a} : Ids{a};
      Ids both = {a, end};
      both.insert(both.end(), word.begin(), word.end());
      const std::vector<std::pair<TokenId, Ids>> answers = {
          {b, both}, {b, {a, b}}, {b, {mark, a}},          {b, {end}}, {b, {a, end, end}},
          {2, word}, {end, word}, {b, {a, mark, mark, b}}, {b, {}}};
      for (const auto& [before, tokens] : answers) {
        std::string bytes;
        for (const TokenId token : tokens) bytes += tokenizer->bytes_of(token);
        const chat::Text text = answer_text(*tokenizer, before, tokens, bytes);
        EXPECT_EQ(tokens_of(*tokenizer, text, before), tokens) << text.bytes();
        const chat::Value message = answer_message(*tokenizer, before, text);
        EXPECT_EQ(message.as_dict().items.size(), 2u) << "nothing is to be told apart";
        EXPECT_EQ(tokens_of(*tokenizer, content_of(reread(message)), before), tokens);
      }
    }
  }
}

// What a model spells in letters stays text, in a file, too.
TEST(AnswerText, TellsRealTokensFromTextThatLooksLikeThem) {
  const auto tokenizer = testing::load_json([] {
    nlohmann::json json = letters_tokenizer(end, nullptr, nullptr, true);
    auto& vocab = json["model"]["vocab"];
    for (const char* letter : {"<", "|", ">"}) vocab[letter] = vocab.size();
    return json;
  }());
  Ids tokens = {a, end};
  std::string shown = "a<|end|>";
  shown += spelt_in_letters("<|end|>b", tokens, *tokenizer);
  tokens.push_back(end);
  shown += "<|end|>";
  const chat::Text text = answer_text(*tokenizer, b, tokens, shown);
  EXPECT_EQ(text.bytes(), shown);
  EXPECT_EQ(tokens_of(*tokenizer, text, b), tokens);
  const chat::Value message = answer_message(*tokenizer, b, text);
  EXPECT_EQ(chat::to_json(*message.as_dict().named("added_tokens_at")).bytes(),
            "[[1, 8], [16, 23]]");
  EXPECT_EQ(tokens_of(*tokenizer, content_of(reread(message)), b), tokens);

  for (const char* wrong : {"1", "[1]", "[[1]]", "[[2, 1]]", "[[0, 2], [1, 3]]", "[[0, 99]]",
                            "[[-1, 2]]", "[[\"0\", 2]]"}) {
    const std::string json =
        std::string(R"({"role": "assistant", "content": "abc", "added_tokens_at": )") + wrong + "}";
    try {
      owned_answer(chat::parse_json(json, "file", true), "file: message 1");
      ADD_FAILURE() << wrong;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      EXPECT_EQ(std::string(error.what()).rfind("file: message 1: \"added_tokens_at\"", 0), 0u)
          << error.what();
    }
  }
}

// A stop text that cut a token in two leaves text behind the last one.
TEST(AnswerText, KeepsWhatAStopTextLeftOfAToken) {
  const auto tokenizer = testing::load_json(letters_tokenizer(end));
  const chat::Text text = answer_text(*tokenizer, b, Ids{a, end, b}, "abx");
  EXPECT_EQ(text.bytes(), "a<|end|>bx");
  EXPECT_TRUE(text.foreign_at(9));
  EXPECT_FALSE(text.foreign_at(3));
}

TEST(AnswerText, BlocksOfTextAreAnAssistantsOwnToo) {
  const chat::Value message = owned_answer(
      chat::parse_json(R"({"role": "assistant", "content": [{"type": "text", "text": "x"}],
                           "reasoning_content": "y", "name": "z"})",
                       "file", true),
      "file");
  const auto& content = message.as_dict().named("content")->as_list().items;
  EXPECT_FALSE(content[0].as_dict().named("text")->text().has_foreign());
  EXPECT_FALSE(message.as_dict().named("reasoning_content")->text().has_foreign());
  EXPECT_TRUE(message.as_dict().named("name")->text().has_foreign());
}

}  // namespace
}  // namespace coppice::conversation
