// Texts and tokens: stop texts that spell special tokens, and text that is appended to tokens.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/endless_pair.h"
#include "reference/letters_tokenizer.h"

namespace coppice::testing {
namespace {

using Json = nlohmann::json;
using Ids = std::vector<TokenId>;

Engine load(const TinyPair& pair, const Json& tokenizer) {
  for (const char* model : {"target", "draft"}) {
    write_file(pair.path() / model / "tokenizer.json", tokenizer.dump());
  }
  return Engine::load(pair.options());
}

TEST(SpeltText, AStopTextMayBeASpecialToken) {
  const TinyPair pair(endless());
  constexpr std::int32_t tokens = 40;
  const Ids whole = [&] {
    Engine engine = load(pair, letters_tokenizer(-1));
    return engine.generate(prompt, greedy(tokens)).tokens;
  }();
  // A token of the text that comes first well within it.
  std::size_t at = 4;
  const auto is_first = [&](std::size_t i) {
    return whole[i] > 3 && std::find(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(i),
                                     whole[i]) == whole.begin() + static_cast<std::ptrdiff_t>(i);
  };
  while (at + 2 < whole.size() && !is_first(at)) ++at;
  ASSERT_LT(at + 2, whole.size());
  Engine engine = load(pair, letters_tokenizer(whole[at]));
  const auto text_of = [&](std::size_t from, std::size_t count) {
    return engine.detokenize(std::span(whole).subspan(from, count));
  };
  // Not shown, where nothing stops at it.
  EXPECT_EQ(engine.generate(prompt, greedy(tokens)).text, text_of(0, tokens));
  EXPECT_EQ(text_of(at, 1), "");

  struct Case {
    std::string stop;
    std::size_t kept;  ///< tokens before it
  };
  const std::vector<Case> cases = {{"<|end|>", at},
                                   {"end|", at},
                                   {text_of(at - 1, 1) + "<|end|>", at - 1},
                                   {"|>" + text_of(at + 1, 1), at},
                                   {text_of(at - 2, 2) + "<|end|>" + text_of(at + 1, 1), at - 2}};
  std::vector<Request> batch;
  for (const Speculation& speculation : std::vector<Speculation>{Plain{}, Dyspec{8}, Chain{4}}) {
    for (const Case& one : cases) {
      GenerateOptions options = greedy(tokens);
      options.speculation = speculation;
      options.stop = {"never", one.stop};
      std::string streamed;
      const Generation result = engine.generate(prompt, options, [&](const Piece& piece) {
        streamed += piece.text;
        return true;
      });
      EXPECT_EQ(result.finish_reason, FinishReason::stop) << one.stop;
      EXPECT_EQ(result.tokens,
                Ids(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(one.kept)))
          << one.stop;
      EXPECT_EQ(result.text, text_of(0, one.kept)) << one.stop;
      EXPECT_EQ(streamed, result.text) << one.stop;
      Request& request = batch.emplace_back();
      request.tokens = prompt;
      request.options = options;
    }
  }
  const std::vector<Outcome> outcomes = engine.generate(batch);
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    const Generation& result = outcomes[i].samples.at(0);
    EXPECT_EQ(result.finish_reason, FinishReason::stop) << i;
    EXPECT_EQ(result.text, text_of(0, cases[i % cases.size()].kept)) << i;
  }
}

// Whoever appends: a sequence, its fork, one of a prefix, and requests of a batch.
TEST(SpeltText, AppendedTextGetsNoDummyPrefix) {
  const TinyPair pair(endless());
  const std::vector<Json> tokenizers = {letters_tokenizer(-1, nullptr, prepend_mark()),
                                        letters_tokenizer(-1, metaspace("first")),
                                        letters_tokenizer(-1, metaspace("always"))};
  for (std::size_t i = 0; i < tokenizers.size(); ++i) {
    SCOPED_TRACE(tokenizers[i]["pre_tokenizer"].dump());
    Engine engine = load(pair, tokenizers[i]);
    GenerateOptions options = greedy(2);
    options.add_bos = false;
    const auto last = [](const Sequence& sequence, std::size_t count) {
      const Ids all = tokens_of(sequence);
      return Ids(all.end() - static_cast<std::ptrdiff_t>(count), all.end() - 2);
    };
    Sequence sequence = engine.new_sequence();
    sequence.generate("ab", options);
    EXPECT_EQ(Ids(sequence.tokens().begin(), sequence.tokens().begin() + 3), Ids({3, 4, 5}));
    Sequence fork = sequence.fork(), other = sequence.fork();
    Sequence begun = engine.prefix("ab", false).begin();
    for (Sequence* one : {&sequence, &fork, &begun}) {
      const std::size_t before = one->tokens().size();
      one->generate("cd", options);
      ASSERT_EQ(one->tokens().size(), before + 4);
      EXPECT_EQ(last(*one, 4), Ids({6, 7}));
    }
    Request request;
    request.prompt = "cd";
    request.options = options;
    request.sequence = &other;
    engine.generate({&request, 1});
    EXPECT_EQ(last(other, 4), Ids({6, 7}));
    // Behind a special token text is what one text with both would be.
    sequence.generate(Ids({2}), options);
    sequence.rewind(static_cast<std::int32_t>(sequence.tokens().size()) - 2);
    sequence.generate("a", options);
    const Ids joined = engine.tokenize("b</s>a", false);
    EXPECT_EQ(last(sequence, 2 + joined.size() - 2),
              Ids(std::find(joined.begin(), joined.end(), 2), joined.end()));
  }
}

}  // namespace
}  // namespace coppice::testing
