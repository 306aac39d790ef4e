// Prompts as tokens: out of a file, or by the target.
#include <gtest/gtest.h>

#include "base/error.h"
#include "engine/pair.h"
#include "reference/files.h"
#include "reference/letters_tokenizer.h"
#include "study/prompts/prompts.h"

namespace coppice::testing {
namespace {

using study::PromptUse;
using study::StudyPrompt;

class PromptTokens : public ::testing::Test {
 protected:
  static TinyModel small_model() {
    TinyModel model;
    model.vocab_size = 12;
    model.layers = 1;
    model.context_length = 16;
    model.bos_token = 0;
    return model;
  }
  static StudyPrompt prompt(std::size_t tokens, std::int64_t line, TokenId last = 1) {
    StudyPrompt one;
    one.tokens.assign(tokens, 1);
    one.tokens.back() = last;
    one.line = line;
    return one;
  }
  std::vector<std::vector<TokenId>> tokens(const std::vector<StudyPrompt>& prompts,
                                           const PromptUse& use = {}) {
    return study::to_tokens(engine_, "mine.jsonl", prompts, use);
  }
  // What is wrong with the last of two prompts, in line 3.
  std::string error(const StudyPrompt& last, const PromptUse& use = {}) {
    return error_of([&] { tokens({prompt(2, 1), last}, use); }, ErrorKind::usage);
  }

  TinyPair pair_ = TinyPair(small_model());
  Engine engine_ = Engine::load(pair_.options());
};

TEST_F(PromptTokens, TheFirstOnesOfEachThatIsLonger) {
  PromptUse use;
  EXPECT_EQ(tokens({prompt(2, 1, 7), prompt(9, 2)}, use)[0], (std::vector<TokenId>{1, 7}));
  EXPECT_EQ(tokens({prompt(2, 1), prompt(9, 2)}, use)[1].size(), 9u);
  use.most = 4;
  EXPECT_EQ(tokens({prompt(2, 1), prompt(9, 2)}, use)[0].size(), 2u);
  EXPECT_EQ(tokens({prompt(2, 1), prompt(9, 2)}, use)[1].size(), 4u);
}

TEST_F(PromptTokens, OutsideTheVocabularyIsAWrongRequest) {
  EXPECT_EQ(error(prompt(2, 3, 12)),
            "prompts 'mine.jsonl' line 3: token 12 is outside the target's vocabulary; give 0 to "
            "11");
  EXPECT_EQ(error(prompt(2, 3, 11)), "");
  PromptUse cut;
  cut.most = 1;
  EXPECT_EQ(error(prompt(2, 3, 12), cut), "") << "it is not used";
}

TEST_F(PromptTokens, LeaveRoom) {
  EXPECT_EQ(error(prompt(15, 3)), "");
  EXPECT_EQ(error(prompt(16, 3)),
            "prompts 'mine.jsonl' line 3: 16 tokens and 1 new one are more than the 16 of the "
            "model's context; cut prompts with --prompt-tokens");
  PromptUse use;
  use.new_tokens = 6;
  use.remedy = "shorten it";
  EXPECT_EQ(error(prompt(10, 3), use), "");
  const std::string said = error(prompt(11, 3), use);
  EXPECT_NE(said.find("line 3: 11 tokens and 6 new ones"), std::string::npos) << said;
  EXPECT_TRUE(said.ends_with("context; shorten it")) << said;
  use.most = 10;
  EXPECT_EQ(error(prompt(11, 3), use), "");
}

// --kv-tokens is a remedy only if the model could take more.
TEST_F(PromptTokens, KvMemoryIsNamedIfItIsShort) {
  TinyModel longer = small_model();
  longer.context_length = 64;
  const TinyPair pair(longer);
  EngineOptions small = pair.options();
  small.kv_tokens = 16;
  Engine engine = Engine::load(small);
  const std::string said = error_of(
      [&] {
        study::to_tokens(engine, "mine.jsonl", {prompt(2, 1), prompt(16, 3)}, {});
      },
      ErrorKind::usage);
  EXPECT_NE(said.find("that the KV memory holds; cut prompts with --prompt-tokens, or raise "
                      "--kv-tokens"),
            std::string::npos)
      << said;
}

TEST_F(PromptTokens, TextsNeedATokenizer) {
  StudyPrompt text;
  text.turns = {"Once"};
  EXPECT_NE(error_of([&] { tokens({text}); }).find("tokenizer"), std::string::npos);
}

// A later turn goes on with an answer: the tokenizer's mark for a text's first word is not its.
TEST_F(PromptTokens, LaterTurnsGoOnWithText) {
  const TinyPair pair;
  for (const char* scheme : {"first", "always"}) {
    for (const char* model : {"target", "draft"}) {
      write_file(pair.path() / model / "tokenizer.json",
                 letters_tokenizer(-1, metaspace(scheme)).dump());
    }
    Engine engine = Engine::load(pair.options());
    StudyPrompt text;
    text.turns = {"ab", "cd"};
    PromptUse use;
    use.add_bos = false;
    const auto turns = study::to_turns(engine, "mine.jsonl", {text}, use);
    ASSERT_EQ(turns.size(), 1u);
    // 3 is the mark, 0 a line break, which has no piece.
    EXPECT_EQ(turns[0], (study::Turns{{3, 4, 5}, {0, 0, 6, 7, 0, 0}})) << scheme;
  }
}

TEST_F(PromptTokens, TextsThatCannotFitAreNotEncoded) {
  const TinyPair pair;
  for (const char* model : {"target", "draft"}) {
    write_file(pair.path() / model / "tokenizer.json", letters_tokenizer(-1).dump());
  }
  Engine engine = Engine::load(pair.options());
  const auto refusal = [&](std::vector<std::string> turns, std::int32_t most = 0) {
    StudyPrompt text;
    text.turns = std::move(turns);
    text.line = 7;
    PromptUse use;
    use.most = most;
    return error_of([&] { study::to_turns(engine, "mine.jsonl", {text}, use); }, ErrorKind::usage);
  };
  const std::string longer(2'000'000, 'a'), longest((16 << 20) + 1, 'a');
  const std::string what =
      cat("prompts 'mine.jsonl' line 7: 2000000 bytes are more than the ", engine.context_length(),
          " tokens of the model's context can spell; cut prompts with "
          "--prompt-tokens");
  EXPECT_EQ(refusal({longer}), what);
  EXPECT_EQ(refusal({"a", longer}), what);
  EXPECT_EQ(refusal({"abc", "abc"}, 2), "");
  EXPECT_EQ(refusal({longest}, 2),
            "prompts 'mine.jsonl' line 7: 16777217 bytes are more than the 16777216 that one to be "
            "cut may have; shorten it");
}

TEST_F(PromptTokens, WrittenByTheTarget) {
  const auto prompts = study::draw_prompts(engine_, 3, 6, 9);
  ASSERT_EQ(prompts.size(), 3u);
  for (const auto& prompt : prompts) {
    EXPECT_EQ(prompt.size(), 6u);
    EXPECT_EQ(prompt[0], 0);
  }
  EXPECT_NE(prompts[0], prompts[1]);
  EXPECT_EQ(prompts, study::draw_prompts(engine_, 3, 6, 9));
  std::stop_source stop;
  stop.request_stop();
  EXPECT_TRUE(study::draw_prompts(engine_, 3, 6, 9, stop.get_token()).empty());
  EXPECT_EQ(study::draw_prompts(engine_, 1, 1, 9)[0].size(), 1u);
  const auto too_long = [&] { study::draw_prompts(engine_, 1, engine_.context_length(), 9); };
  EXPECT_NE(error_of(too_long, ErrorKind::usage).find("--prompt-tokens 16"), std::string::npos);
}

}  // namespace
}  // namespace coppice::testing
