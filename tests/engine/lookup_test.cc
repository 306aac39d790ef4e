// Drafts without a model, through the engine: the text is plain decoding's, with any policy, in
// batches, beside a draft and alone.
#include <gtest/gtest.h>

#include <cmath>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/error.h"
#include "drafting/answer_index.h"
#include "engine/batch_requests.h"
#include "engine/pair.h"
#include "engine/sequence_impl.h"

namespace coppice::testing {
namespace {

const char* const repetitive_prompt =
    "Once upon a time there was a little dog named Tim. Tim had a red ball. Once upon a time there "
    "was a little dog named Tim. Tim had a red ball. Once upon a time there was";

GenerateOptions looked_up(Speculation speculation, Lookup lookup, bool coupled = false) {
  GenerateOptions options;
  options.max_new_tokens = 64;
  options.ignore_eos = true;
  options.logprobs = true;
  options.seed = 5;
  options.lookup = lookup;
  options.speculation = std::move(speculation);
  if (coupled) {
    options.sampling.temperature = 0.7;
    options.acceptance = Acceptance::coupled;
  }
  return options;
}

bool equal(const TokenLogprob& a, const TokenLogprob& b) {
  return a.token == b.token && a.logprob == b.logprob && a.top == b.top;
}

void expect_same(const Generation& found, const Generation& plain, const std::string& what) {
  EXPECT_EQ(found.tokens, plain.tokens) << what;
  ASSERT_EQ(found.logprobs.size(), plain.logprobs.size()) << what;
  for (std::size_t i = 0; i < plain.logprobs.size() && !on_cuda(); ++i) {
    ASSERT_TRUE(equal(found.logprobs[i], plain.logprobs[i])) << what << ", token " << i;
  }
}

const std::vector<Speculation> takers = {
    Dyspec{},          Dyspec{12}, Dyspec{12, true}, DyspecThreshold{0.1, 16},
    DyspecThreshold{}, Chain{},    Chain{6}};

TEST(Lookup, TextsAreThoseOfPlainDecoding) {
  for (const bool with_draft : {true, false}) {
    EngineOptions load = shipped_options();
    if (!with_draft) load.draft.clear();
    Engine engine = Engine::load(load);
    for (const bool coupled : {false, true}) {
      const Generation plain =
          engine.generate(repetitive_prompt, looked_up(Plain{}, Lookup::none, coupled));
      std::int64_t looked = 0, accepted = 0;
      for (const auto& speculation : takers) {
        for (const Lookup lookup : {Lookup::text, Lookup::engine}) {
          const Generation found =
              engine.generate(repetitive_prompt, looked_up(speculation, lookup, coupled));
          const std::string what = name_of(speculation) + (with_draft ? "" : ", no draft");
          if (on_cuda()) continue;  // near-ties of rounding are identity_test.cc's
          expect_same(found, plain, what);
          EXPECT_EQ(found.used.lookup, lookup) << what;
          EXPECT_EQ(found.used.policy, name_of(speculation)) << what;
          EXPECT_TRUE(with_draft || found.statistics.draft_passes == 0) << what;
          if (found.used.tree_size == 0) continue;  // the clock may say that nothing pays
          looked += found.statistics.looked_up;
          accepted += found.statistics.looked_up_accepted;
        }
      }
      if (!on_cuda()) {
        EXPECT_GT(accepted, with_draft ? 5 : 20) << with_draft << coupled;
        EXPECT_GE(looked, accepted);
      }
    }
  }
}

TEST(Lookup, BesideOthersToo) {
  for (const bool with_draft : {true, false}) {
    EngineOptions load = shipped_options();
    if (!with_draft) load.draft.clear();
    Engine engine = Engine::load(load);
    std::vector<Request> requests;
    for (int i = 0; i < 6; ++i) {
      Request& request = requests.emplace_back();
      request.prompt = repetitive_prompt + std::string(i % 2 == 0 ? " a" : " a big");
      request.options = looked_up(i == 5 ? Speculation{Dyspec{8}} : Dyspec{},
                                  i % 3 == 0 ? Lookup::none : Lookup::engine, i % 2 == 0);
      request.options.stream = static_cast<std::uint64_t>(i);
    }
    const std::vector<Outcome> outcomes = engine.generate(requests);
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const Generation& found = only(outcomes[i]);
      GenerateOptions plain = requests[i].options;
      plain.speculation = Plain{};
      plain.lookup = Lookup::none;
      if (!on_cuda()) {
        expect_same(found, engine.generate(requests[i].prompt, plain), std::to_string(i));
      }
    }
  }
}

// Without its draft an engine does what one without a draft does, alone and beside others that use
// it.
TEST(Lookup, TheDraftMayBeLeftOut) {
  if (on_cuda()) GTEST_SKIP() << "passes of other shapes round otherwise there";
  EngineOptions load = shipped_options();
  Engine engine = Engine::load(load);
  load.draft.clear();
  Engine without = Engine::load(load);
  std::vector<Request> requests;
  for (const Speculation& speculation :
       {Speculation{Dyspec{8}}, Speculation{Chain{6}}, Speculation{DyspecThreshold{0.1, 16}},
        Speculation{Dyspec{}}}) {
    GenerateOptions options = looked_up(speculation, Lookup::text);
    options.use_draft = false;
    const Generation found = engine.generate(repetitive_prompt, options);
    const Generation expected = without.generate(repetitive_prompt, options);
    expect_same(found, expected, name_of(speculation));
    EXPECT_EQ(found.statistics.draft_passes, 0) << name_of(speculation);
    if (found.used.tree_size > 0) {  // else the clock may say that nothing pays
      EXPECT_GT(found.statistics.looked_up_accepted, 0) << name_of(speculation);
      EXPECT_EQ(found.statistics.steps, expected.statistics.steps) << name_of(speculation);
      EXPECT_EQ(found.statistics.looked_up, expected.statistics.looked_up) << name_of(speculation);
    }
    for (const bool use_draft : {false, true}) {
      Request& request = requests.emplace_back();
      request.prompt = repetitive_prompt;
      request.options = options;
      request.options.use_draft = use_draft;
      request.options.stream = requests.size();
    }
  }
  const std::vector<Outcome> outcomes = engine.generate(requests);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const Generation& found = only(outcomes[i]);
    if (!requests[i].options.use_draft) {
      EXPECT_EQ(found.statistics.draft_passes, 0) << i;
    } else if (found.used.tree_size > 0) {
      EXPECT_GT(found.statistics.draft_passes, 0) << i;
    }
    expect_same(found, engine.generate(requests[i].prompt, requests[i].options), std::to_string(i));
  }
  GenerateOptions neither = looked_up(Dyspec{8}, Lookup::none);
  neither.use_draft = false;
  EXPECT_EQ(engine.generate(repetitive_prompt, neither).used.policy, "none");
}

// A sequence keeps the index of its own tokens for its next turn, which finds what a new one would.
// What was cut back, or failed, or is a fork's, is indexed anew.
TEST(Lookup, ASequenceKeepsItsIndex) {
  EngineOptions load = shipped_options();
  load.draft.clear();
  Engine engine = Engine::load(load);
  const GenerateOptions options = looked_up(Chain{6}, Lookup::text);
  Sequence sequence = engine.new_sequence();
  const auto index = [](const Sequence& of) -> const TextIndex& {
    return SequenceAccess::impl(of)->index;
  };
  const auto steps_anew = [&](std::span<const TokenId> before) {
    Sequence other = engine.new_sequence();
    return other.generate(before, options).statistics.steps;
  };
  sequence.generate(repetitive_prompt, options);
  const auto first = static_cast<std::int64_t>(sequence.tokens().size());
  EXPECT_LE(index(sequence).appended(), first);
  EXPECT_GT(index(sequence).appended(), first - 8);
  const std::vector<TokenId> more = {sequence.tokens()[5], sequence.tokens()[6]};
  const auto turn = [&](Sequence& of) {
    std::vector<TokenId> whole(of.tokens().begin(), of.tokens().end());
    whole.insert(whole.end(), more.begin(), more.end());
    EXPECT_EQ(of.generate(more, options).statistics.steps, steps_anew(whole));
  };
  turn(sequence);
  const auto second = static_cast<std::int64_t>(sequence.tokens().size());
  EXPECT_LE(index(sequence).appended(), second) << "indexed anew";

  Sequence fork = sequence.fork();
  EXPECT_EQ(index(fork).appended(), 0);
  turn(fork);
  EXPECT_GT(index(fork).appended(), second);

  sequence.rewind(30);
  turn(sequence);
  EXPECT_GT(index(sequence).appended(), second + 30) << "not indexed anew";
  const std::vector<TokenId> before(sequence.tokens().begin(), sequence.tokens().end());
  EXPECT_THROW(
      {
        sequence.generate(more, options,
                          [](const Piece&) -> bool { throw std::runtime_error("mine"); });
      },
      std::runtime_error);
  ASSERT_EQ(std::vector<TokenId>(sequence.tokens().begin(), sequence.tokens().end()), before);
  turn(sequence);
}

TEST(Lookup, AnIndexKnowsItsText) {
  TextIndex index;
  const std::vector<TokenId> text = {1, 2, 3, 1, 2, 3, 1, 2}, other = {1, 2, 3, 1, 2, 4, 1, 2};
  const auto first = [](const std::vector<TokenId>& tokens, std::size_t count) {
    return std::span<const TokenId>(tokens).first(count);
  };
  const auto appended_by = [&](std::span<const TokenId> tokens) {
    const std::int64_t before = index.appended();
    index.begin(tokens);
    index.follow(tokens);
    return index.appended() - before;
  };
  EXPECT_EQ(appended_by(first(text, 5)), 5);
  EXPECT_EQ(appended_by(first(text, 7)), 2);
  EXPECT_EQ(appended_by(text), 1);
  EXPECT_EQ(appended_by(first(text, 6)), 6) << "cut back";
  EXPECT_EQ(appended_by(other), 8) << "another end";
  EXPECT_EQ(index.index().end().length, 2);
  // Of a text so long that its first half is forgotten, too.
  std::vector<TokenId> longer((std::size_t{1} << 17) + 10);
  for (std::size_t i = 0; i < longer.size(); ++i) longer[i] = static_cast<TokenId>(i);
  appended_by(first(longer, longer.size() - 3));
  EXPECT_EQ(appended_by(longer), 3);
  longer[longer.size() - 2] = 5;
  EXPECT_EQ(appended_by(longer), static_cast<std::int64_t>(longer.size()));
}

// Beside a draft a chain of given length follows whoever guesses better, and so do plain values.
TEST(Lookup, ChainsAndPlainValuesHaveBothKindsOfChildren) {
  Engine engine = Engine::load(shipped_options());
  for (const Speculation& speculation : {Speculation{Chain{4}}, Speculation{Dyspec{12, true}}}) {
    for (const bool coupled : {false, true}) {
      for (const bool rejection : {false, true}) {
        if (rejection && !coupled) continue;  // is at temperature 0
        GenerateOptions options = looked_up(speculation, Lookup::text, coupled);
        if (rejection) options.acceptance = Acceptance::rejection;
        const Statistics s = engine.generate(repetitive_prompt, options).statistics;
        const auto drafted = static_cast<std::int64_t>(
            std::llround(s.tree_size_mean * static_cast<double>(s.steps)));
        EXPECT_GT(s.looked_up, 0) << name_of(speculation) << coupled << rejection;
        EXPECT_LT(s.looked_up, drafted) << name_of(speculation) << coupled << rejection;
      }
    }
  }
}

// A second text finds what the first one wrote.
TEST(Lookup, EarlierAnswersAreFound) {
  EngineOptions load = shipped_options();
  load.draft.clear();
  Engine engine = Engine::load(load);
  const GenerateOptions options = looked_up(Chain{8}, Lookup::engine);
  const Generation first = engine.generate("One day a bear went to", options);
  const Generation again = engine.generate("One day a bear went to", options);
  EXPECT_EQ(again.tokens, first.tokens);
  EXPECT_LT(again.statistics.steps, first.statistics.steps / 2);
  GenerateOptions own = options;
  own.lookup = Lookup::text;
  EXPECT_EQ(engine.generate("One day a bear went to", own).statistics.steps,
            first.statistics.steps);
}

// A seed and a size repeat a sampled text, whatever was written before.
TEST(Lookup, FixedSizesRepeatThemselves) {
  if (on_cuda()) GTEST_SKIP() << "passes of other shapes round otherwise there";
  Engine engine = Engine::load(shipped_options());
  GenerateOptions options = looked_up(Dyspec{12}, Lookup::text);
  options.sampling.temperature = 0.8;
  options.acceptance = Acceptance::rejection;
  const Generation first = engine.generate(repetitive_prompt, options);
  EXPECT_GT(first.statistics.looked_up, 0);
  GenerateOptions other = options;
  other.seed = 6;
  engine.generate(repetitive_prompt, other);
  EXPECT_EQ(engine.generate(repetitive_prompt, options).tokens, first.tokens);
}

// A table of passes that cost so much, however many rows they have.
CostTable flat_costs(double target, double draft) {
  const auto passes = [](double seconds) {
    return PassCosts(1, 512, {{1, seconds, seconds}, {128, 1.01 * seconds, 1.01 * seconds}});
  };
  return {"flat", passes(target), passes(draft)};
}

// Nobody has to ask for it where it pays, and it changes nothing elsewhere: trees of given size or
// shape, children sampled from drafts whose passes are next to free, and texts without a draft.
TEST(Lookup, IsAutomaticBesideADraftOfAutomaticSize) {
  Engine engine = Engine::load(shipped_options());
  inside(engine).costs = flat_costs(1e-3, 2e-4);
  const Generation plain = engine.generate(repetitive_prompt, looked_up(Plain{}, Lookup::none));
  const auto text_of = [&](GenerateOptions options) {
    const Generation found = engine.generate(repetitive_prompt, options);
    if (!on_cuda()) expect_same(found, plain, name_of(options.speculation));
    return found;
  };
  EXPECT_EQ(GenerateOptions().lookup, Lookup::automatic);
  for (const Speculation& speculation :
       {Speculation{Dyspec{}}, Speculation{Chain{}}, Speculation{DyspecThreshold{}}}) {
    const Generation found = text_of(looked_up(speculation, Lookup::automatic));
    EXPECT_EQ(found.used.lookup, Lookup::text) << name_of(speculation);
    EXPECT_GT(found.statistics.looked_up_accepted, 0) << name_of(speculation);
  }
  for (const Speculation& speculation :
       {Speculation{Dyspec{8}}, Speculation{Chain{4}}, Speculation{DyspecThreshold{0.1, 16}},
        Speculation{StaticTree{{{0}, {1}}}}, Speculation{SpecInfer{}},
        Speculation{Sequoia{8, 0, {}}}, Speculation{ExpandRerank{8}}}) {
    const Generation found = text_of(looked_up(speculation, Lookup::automatic));
    EXPECT_EQ(found.used.lookup, Lookup::none) << name_of(speculation);
    EXPECT_EQ(found.statistics.looked_up, 0) << name_of(speculation);
  }
  inside(engine).costs = flat_costs(1e-3, 3e-5);
  // Beside passes that are next to free it takes growth that can drop what the draft disbelieves.
  EXPECT_EQ(text_of(looked_up(Dyspec{}, Lookup::automatic)).used.lookup, Lookup::text);
  EXPECT_EQ(text_of(looked_up(DyspecThreshold{}, Lookup::automatic)).used.lookup, Lookup::none);
  GenerateOptions sampled = looked_up(Dyspec{}, Lookup::automatic);
  sampled.sampling.temperature = 0.7;
  sampled.acceptance = Acceptance::rejection;
  EXPECT_EQ(engine.generate(repetitive_prompt, sampled).used.lookup, Lookup::none);
  sampled.acceptance = Acceptance::coupled;
  EXPECT_EQ(engine.generate(repetitive_prompt, sampled).used.lookup, Lookup::text);
  GenerateOptions alone = looked_up(Dyspec{}, Lookup::automatic);
  alone.use_draft = false;
  const Generation without = text_of(alone);
  EXPECT_EQ(without.used.policy, "none");
  EXPECT_EQ(without.used.lookup, Lookup::none);
}

TEST(Lookup, IsRefusedWhereItHasNoPlace) {
  Engine engine = Engine::load(shipped_options());
  for (const Speculation& speculation :
       {Speculation{StaticTree{{{0}, {1}}}}, Speculation{SpecInfer{}},
        Speculation{Sequoia{8, 0, {}}}, Speculation{ExpandRerank{8}}}) {
    try {
      engine.generate(repetitive_prompt, looked_up(speculation, Lookup::text));
      ADD_FAILURE() << name_of(speculation);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      EXPECT_NE(std::string(error.what())
                    .find("lookup text: the trees of policy " + name_of(speculation) +
                          " have the draft's children alone; use dyspec"),
                std::string::npos)
          << error.what();
    }
  }
}

TEST(AnswerIndex, LeastRecentlyUsedAnswersLeave) {
  AnswerIndex answers(36);
  const auto answer = [](TokenId of) {
    return std::vector<TokenId>{of, of + 1, of + 2, of + 3, of + 4, of + 5, of + 6, of + 7, of + 8};
  };
  const auto place_of = [&](TokenId token) -> std::int32_t {
    const auto followers = answers.index().after(answers.index().then({}, token));
    return followers.empty() ? -1 : followers[0].last;
  };
  for (const TokenId of : {100, 200, 300}) answers.add(answer(of));
  ASSERT_GE(place_of(100), 0);
  answers.note_use(place_of(100));
  EXPECT_EQ(answers.version(), 0);
  answers.add(answer(400));  // too many: 200 and 300 were used least recently
  EXPECT_EQ(answers.version(), 1);
  EXPECT_GE(place_of(100), 0);
  EXPECT_GE(place_of(400), 0);
  EXPECT_LT(place_of(200), 0);
  for (TokenId of = 1000; of < 3000; of += 10) {
    answers.add(answer(of));
    ASSERT_LE(answers.index().size(), 36);
  }
  answers.add(std::vector<TokenId>(1000, 7));
  EXPECT_LE(answers.index().size(), 41);
}

}  // namespace
}  // namespace coppice::testing
