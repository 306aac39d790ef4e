// The trie of a vocabulary's bytes.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>

#include "constraints/languages.h"
#include "models/tokenizer/tokenizer.h"

namespace coppice::constraints_test {
namespace {

TEST(ConstraintVocabulary, TrieHasEachTokenOnce) {
  const Vocabulary& vocabulary = *small_vocabulary();
  const auto nodes = vocabulary.nodes();
  std::map<TokenId, std::string> found;
  std::string path;
  for (std::size_t i = 1; i + 1 < nodes.size(); ++i) {
    path.resize(nodes[i].depth - 1u);
    path.push_back(static_cast<char>(nodes[i].byte));
    for (auto t = nodes[i].first_token; t < nodes[i + 1].first_token; ++t) {
      EXPECT_TRUE(found.emplace(vocabulary.tokens()[t], path).second);
    }
    EXPECT_GT(nodes[i].end, i);
    for (std::size_t j = i + 1; j < nodes[i].end; ++j) EXPECT_GT(nodes[j].depth, nodes[i].depth);
    EXPECT_LE(nodes[nodes[i].end].depth, nodes[i].depth);
  }
  const auto pieces = small_pieces();
  for (std::size_t t = 2; t < pieces.size(); ++t)
    EXPECT_EQ(found[static_cast<TokenId>(t)], pieces[t]);
  EXPECT_EQ(found.size(), pieces.size() - 2);
  EXPECT_TRUE(vocabulary.has_all_bytes());
  EXPECT_TRUE(vocabulary.has_longer("aaaa"));
  EXPECT_FALSE(vocabulary.has_longer("aaaaaaaa"));
  EXPECT_FALSE(Vocabulary(std::vector<std::string>{"a", "b"}, {}).has_all_bytes());
}

TEST(ConstraintVocabulary, RefusesAnEndTokenThatItLacks) {
  const std::vector<TokenId> ends = {7};
  EXPECT_NE(refusal([&] { Vocabulary(std::vector<std::string>{"a"}, ends); }).find("end token 7"),
            std::string::npos);
}

// The shipped model's tokenizer is sentencepiece's, with a piece for each byte.
TEST(ConstraintVocabulary, TokenizersWordsBeginWithSpaces) {
  const auto tokenizer = Tokenizer::load(COPPICE_SOURCE_DIR "/models/stories/target");
  const std::vector<TokenId> ends = {2};
  const auto vocabulary = std::make_shared<const Vocabulary>(*tokenizer, ends);
  EXPECT_EQ(vocabulary->size(), tokenizer->pieces());
  EXPECT_TRUE(vocabulary->has_all_bytes());
  EXPECT_EQ(vocabulary->bytes(1), "\xff<s>");
  const auto story = compiled({Kind::regex, {"Once upon a time, \xc3\xa9[.]"}}, vocabulary);
  Constraint::State state = story->start();
  const std::vector<TokenId> tokens = story->forced(state);
  std::string text;
  for (const TokenId token : tokens) {
    EXPECT_TRUE(story->mask(state)->has(token));
    EXPECT_FALSE(story->mask(state)->has(1));
    EXPECT_FALSE(story->mask(state)->has(2));
    state = story->advance(state, token);
    ASSERT_NE(state, Constraint::nowhere);
    text += vocabulary->bytes(token);
  }
  EXPECT_TRUE(std::string("Once upon a time, \xc3\xa9.").starts_with(text)) << text;
  EXPECT_GT(text.size(), 10u);
  EXPECT_LT(tokens.size(), text.size());
}

}  // namespace
}  // namespace coppice::constraints_test
