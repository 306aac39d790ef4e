// What callbacks may do, and what may happen to the files of models that are in use.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include "engine/endless_pair.h"
#include "reference/files.h"

namespace coppice::testing {
namespace {

namespace fs = std::filesystem;

TEST(Callbacks, MayNotGenerateOnTheirOwnSequence) {
  const TinyPair pair(endless());
  Engine engine = Engine::load(pair.options());
  const std::vector<TokenId> alone = engine.generate(prompt, greedy(30)).tokens;
  {
    Sequence sequence = engine.new_sequence();
    int refused = 0;
    const Generation g = sequence.generate(prompt, greedy(30), [&](const Piece&) {
      try {
        sequence.generate(prompt, greedy(2));
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::usage);
        EXPECT_NE(std::string(error.what()).find("under way"), std::string::npos) << error.what();
        ++refused;
      }
      return true;
    });
    EXPECT_GT(refused, 0);
    EXPECT_EQ(g.tokens, alone);
    EXPECT_EQ(sequence.tokens().size(), prompt.size() + 30);
    EXPECT_EQ(sequence.generate(prompt, greedy(5)).tokens.size(), 5u) << "free again";
  }
  expect_nothing_leaked(engine);
}

TEST(Callbacks, MayUseOtherSequences) {
  const TinyPair pair(endless());
  Engine engine = Engine::load(pair.options());
  const std::vector<TokenId> alone = engine.generate(prompt, greedy(30)).tokens;
  int inner = 0;
  const Generation g = engine.generate(prompt, greedy(30), [&](const Piece&) {
    EXPECT_EQ(engine.generate(prompt, greedy(30)).tokens, alone);
    ++inner;
    return true;
  });
  EXPECT_GT(inner, 0);
  EXPECT_EQ(g.tokens, alone);
}

TEST(Callbacks, MayDestroyOrMoveTheirSequence) {
  const TinyPair pair(endless());
  Engine engine = Engine::load(pair.options());
  const std::vector<TokenId> alone = engine.generate(prompt, greedy(30)).tokens;
  std::optional<Sequence> sequence = engine.new_sequence();
  EXPECT_EQ(sequence
                ->generate(prompt, greedy(30),
                           [&](const Piece&) {
                             sequence.reset();
                             return true;
                           })
                .tokens,
            alone);
  expect_nothing_leaked(engine);

  sequence = engine.new_sequence();
  std::optional<Sequence> moved;
  sequence->generate(prompt, greedy(30), [&](const Piece&) {
    if (!moved) moved = std::move(*sequence);
    return true;
  });
  EXPECT_EQ(moved->tokens().size(), prompt.size() + 30);
  moved.reset();
  expect_nothing_leaked(engine);
}

// Its shared noise, too: what is written next is what it would have been without the call that
// threw.
TEST(Callbacks, ThatThrowLeaveTheSequenceAsItWas) {
  Engine engine = Engine::load(shipped_options());
  GenerateOptions options = greedy(60);
  options.sampling.temperature = 1.0;
  options.acceptance = Acceptance::coupled;
  const std::string whole = engine.generate("Once upon a time", options).text;
  // In the middle, then where stop texts end it: some begin within a token, so that a piece comes
  // with the end.
  for (std::size_t at = whole.size() / 2; at < whole.size() / 2 + 9; ++at) {
    GenerateOptions ended = options;
    std::size_t last = at;
    if (at > whole.size() / 2) {
      ended.stop = {whole.substr(at, 3)};
      last = engine.generate("Once upon a time", ended).text.size();
    }
    Sequence sequence = engine.new_sequence();
    std::size_t seen = 0;
    EXPECT_THROW(sequence.generate("Once upon a time", ended,
                                   [&](const Piece& piece) -> bool {
                                     seen += piece.text.size();
                                     if (seen >= last) throw std::runtime_error("the caller's");
                                     return true;
                                   }),
                 std::runtime_error);
    EXPECT_TRUE(sequence.tokens().empty());
    engine.drop_cache();  // a GPU's passes over fewer rows may round otherwise
    EXPECT_EQ(sequence.generate("Once upon a time", options).text, whole) << at;
  }
}

// The first call of an automatic size measures costs and tells of it.
TEST(Callbacks, ProgressMayUseTheEngine) {
  const TinyPair pair(endless());
  std::unique_ptr<Engine> engine;
  std::vector<double> told;
  EngineOptions options = pair.options();
  GenerateOptions automatic = greedy(20);
  automatic.speculation = Dyspec{};
  options.progress = [&](const LoadEvent& event) {
    if (std::string(event.what) != "costs") return;
    told.push_back(event.fraction);
    EXPECT_EQ(engine->generate(prompt, automatic).tokens.size(), 20u);
  };
  engine = std::make_unique<Engine>(Engine::load(options));
  EXPECT_EQ(engine->generate(prompt, automatic).tokens.size(), 20u);
  ASSERT_FALSE(told.empty());
  EXPECT_EQ(told.front(), 0.0);
}

TEST(Files, MayChangeOnceTheModelsAreLoaded) {
  for (const bool tied : {false, true}) {
    TinyModel model = endless();
    model.tie_word_embeddings = tied;
    const TinyPair pair(model);
    Engine engine = Engine::load(pair.options());
    const std::vector<TokenId> before = engine.generate(prompt, greedy(30)).tokens;
    for (const char* name : {"target", "draft"}) {
      const fs::path weights = pair.path() / name / "model.safetensors";
      const auto bytes = fs::file_size(weights);
      std::fstream(weights, std::ios::binary | std::ios::in | std::ios::out)
          << std::string(bytes, '\x7f');
    }
    EXPECT_EQ(engine.generate(prompt, greedy(30)).tokens, before) << "written over";
    int pieces = 0;
    const Generation g = engine.generate(prompt, greedy(30), [&](const Piece&) {
      if (pieces++ == 0) {
        for (const char* name : {"target", "draft"}) {
          fs::resize_file(pair.path() / name / "model.safetensors", 10);
        }
      }
      return true;
    });
    EXPECT_EQ(g.tokens, before) << "cut in mid-generation";
  }
}

TEST(ShippedPair, LongPromptsAreRefusedByTheirBytes) {
  Engine engine = Engine::load(shipped_options());
  const std::string text(10'000'000, 'a');
  const auto refusal = [&](auto call) -> std::string {
    try {
      call();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      return error.what();
    }
    return "accepted";
  };
  const char* says = "prompt: 10000000 bytes are too many for the 512 tokens";
  EXPECT_EQ(refusal([&] { engine.generate(text, greedy(1)); }).find(says), 0u);
  EXPECT_EQ(refusal([&] { engine.judge_tree(text, greedy(1)); }).find(says), 0u);
  Sequence sequence = engine.new_sequence();
  sequence.generate("Once", greedy(1));
  EXPECT_NE(refusal([&] { sequence.generate(text, greedy(1)); }).find("bytes are too many"),
            std::string::npos);
}

TEST(Prompts, RefusalsSayWhatRemains) {
  TinyModel model = endless();
  model.context_length = 40;
  const TinyPair pair(model);
  Engine engine = Engine::load(pair.options());
  Sequence sequence = engine.new_sequence();
  sequence.generate(std::vector<TokenId>(35, 5), greedy(2));
  const auto refusal = [&](std::size_t tokens) -> std::string {
    try {
      sequence.generate(std::vector<TokenId>(tokens, 5), greedy(1));
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_NE(refusal(10).find("47 tokens with those before it leave no room in the context of 40; "
                             "shorten it to at most 2 tokens"),
            std::string::npos)
      << refusal(10);
  EXPECT_EQ(refusal(2), "accepted");
  EXPECT_NE(refusal(1).find("begin a new sequence"), std::string::npos) << refusal(1);
}

// What they name suffices, whichever of context and KV memory is the shorter.
TEST(Prompts, RefusalsNameTheShorterLimit) {
  const TinyPair pair(endless(60));
  EngineOptions load = pair.options();
  load.kv_tokens = 48;
  Engine engine = Engine::load(load);
  const auto refusal = [&](Sequence& sequence, std::size_t tokens) {
    return error_of([&] { sequence.generate(std::vector<TokenId>(tokens, 5), greedy(1)); },
                    ErrorKind::usage);
  };
  Sequence sequence = engine.new_sequence();
  EXPECT_NE(refusal(sequence, 70).find("shorten it to at most 48 tokens"), std::string::npos);
  EXPECT_NE(refusal(sequence, 50).find("or shorten it to at most 48 tokens"), std::string::npos);
  sequence.generate(std::vector<TokenId>(48, 5), greedy(1));
  EXPECT_NE(refusal(sequence, 1)
                .find("50 tokens with those before it do not fit the 48 KV slots; "
                      "raise kv_tokens (--kv-tokens) or begin a new sequence"),
            std::string::npos)
      << refusal(sequence, 1);
}

}  // namespace
}  // namespace coppice::testing
