// Programs over three letters whose law is enumerated, and what holds of it.
//
// The tolerance. The engine computes logits below 8 in F32: a row of 32 and 56 products is right to
// 1e-6, probabilities to 3e-6 of themselves, texts of at most 6 tokens to 2e-5 of theirs, none of
// which is above a quarter. Filters are not used: rounding decides nothing. Faults are planted that
// must move some text's probability by twenty times as much.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "engine/batch_requests.h"
#include "engine/enumerated_engine.h"
#include "engine/law_prices.h"
#include "engine/lettered_pair.h"
#include "engine/sequence_impl.h"

namespace coppice::testing {

inline constexpr double tolerance = 5e-6, noticed = 1e-4;

inline TinyModel of_tokens(std::int32_t tokens) {
  TinyModel model = law_shape(11);
  model.vocab_size = tokens;
  return model;
}

// Tokens are the letters a, b and c, or other texts.
class ThreeLetters : public TinyPair {
 public:
  explicit ThreeLetters(const nlohmann::json& vocab = {{"a", 0}, {"b", 1}, {"c", 2}})
      : TinyPair(of_tokens(static_cast<std::int32_t>(vocab.size())), 0.5) {
    write_letters(path() / "target", vocab);
    std::filesystem::rename(write_law_prices(*this, {0}), path() / "low-prices.json");
    // A node must be worth more than a third of a plain step.
    std::filesystem::rename(write_law_prices(*this, {0}, 6e-4), path() / "high-prices.json");
  }
  EngineOptions options(std::int32_t tree = 3, bool dear = false) const {
    EngineOptions options = TinyPair::options();
    options.cost_table = path() / (dear ? "high-prices.json" : "low-prices.json");
    options.max_tree_size = tree;
    options.kv_tokens = 256;
    return options;
  }
};

inline GenerateOptions sampled(std::int32_t tokens, Speculation speculation = Dyspec{},
                               std::uint64_t stream = 0) {
  GenerateOptions options;
  options.max_new_tokens = tokens;
  options.speculation = std::move(speculation);
  options.acceptance = Acceptance::rejection;
  options.sampling.temperature = 1.0;
  options.stream = stream;
  options.lookup = Lookup::none;  // who looks up says so
  return options;
}

inline std::vector<TokenId> after(std::vector<TokenId> prompt, std::span<const TokenId> tokens) {
  prompt.insert(prompt.end(), tokens.begin(), tokens.end());
  return prompt;
}

inline void add(TokenPath& to, const std::vector<TokenId>& tokens) {
  to.insert(to.end(), tokens.begin(), tokens.end());
}

// What a program does to a sequence beside the engine's own doing: planted faults.
struct StateFaults {
  std::function<void(SequenceState& state, const SequenceState& before)> rewound = {};
  std::function<void(SequenceState& state)> forked = {};
};

// One text of so many tokens.
inline Program one_text(std::string name, const GenerateOptions& options) {
  return {std::move(name),
          [options](Engine& engine) {
            return TokenPath(engine.generate(std::vector<TokenId>{0}, options).tokens);
          },
          [](const TokenPath& path) { return after({0}, path); }, options.sampling};
}

// One text behind a prompt in which things occur twice.
inline Program repetitive(std::string name, const GenerateOptions& options) {
  const std::vector<TokenId> prompt = {0, 1, 2, 0, 1, 1, 0, 1};
  return {std::move(name),
          [options, prompt](Engine& engine) {
            return TokenPath(engine.generate(prompt, options).tokens);
          },
          [prompt](const TokenPath& path) { return after(prompt, path); }, options.sampling};
}

// Two turns of two tokens, a prompt of one before each.
inline Program turns(const GenerateOptions& options) {
  return {"turns",
          [options](Engine& engine) {
            Sequence sequence = engine.new_sequence();
            TokenPath seen;
            for (const TokenId prompt : {0, 1}) {
              add(seen, sequence.generate(std::vector<TokenId>{prompt}, options).tokens);
            }
            return seen;
          },
          [](const TokenPath& path) {
            const std::span<const TokenId> seen = path;
            if (seen.size() < 2) return after({0}, seen);
            return after(after(after({0}, seen.first(2)), std::vector<TokenId>{1}),
                         seen.subspan(2));
          },
          options.sampling};
}

// Two tokens, of which the last one is taken back, then two others.
inline Program rewound(const GenerateOptions& options, const StateFaults& faults = {}) {
  return {"rewound",
          [options, faults](Engine& engine) {
            Sequence sequence = engine.new_sequence();
            TokenPath seen = sequence.generate(std::vector<TokenId>{0}, options).tokens;
            SequenceState& state = SequenceAccess::impl(sequence)->state;
            SequenceState before = inside(engine).new_state();
            before.take_text(state);
            sequence.rewind(2);
            if (faults.rewound) faults.rewound(state, before);
            add(seen, sequence.generate(std::vector<TokenId>{}, options).tokens);
            return seen;
          },
          [](const TokenPath& path) {
            const std::span<const TokenId> seen = path;
            if (seen.size() < 2) return after({0}, seen);
            return after(after({0}, seen.first(1)), seen.subspan(2));
          },
          options.sampling};
}

// A text of one token, and two that go on with it side by side.
inline Program forked(const GenerateOptions& options, const StateFaults& faults = {}) {
  return {"forked",
          [options, faults](Engine& engine) {
            GenerateOptions first = options;
            first.max_new_tokens = 1;
            Sequence trunk = engine.new_sequence();
            TokenPath seen = trunk.generate(std::vector<TokenId>{0}, first).tokens;
            Sequence branch = trunk.fork();
            if (faults.forked) faults.forked(SequenceAccess::impl(branch)->state);
            std::vector<Request> requests(2);
            requests[0].sequence = &trunk;
            requests[1].sequence = &branch;
            for (Request& request : requests) request.options = options;
            requests[1].options.stream = options.stream + 1;
            for (const Outcome& outcome : engine.generate(requests)) {
              add(seen, only(outcome).tokens);
            }
            return seen;
          },
          [each = static_cast<std::size_t>(options.max_new_tokens)](const TokenPath& path) {
            const std::span<const TokenId> seen = path;
            if (seen.size() < 1 + each) return after({0}, seen);
            return after(after({0}, seen.first(1)), seen.subspan(1 + each));
          },
          options.sampling};
}

// Two texts that have nothing to do with each other but their passes.
inline Program side_by_side(const GenerateOptions& a, const GenerateOptions& b) {
  return {"side by side",
          [a, b](Engine& engine) {
            TokenPath seen;
            const std::vector<Request> requests = {request_of({0}, a), request_of({1}, b)};
            for (const Outcome& outcome : engine.generate(requests)) {
              add(seen, only(outcome).tokens);
            }
            return seen;
          },
          [first = static_cast<std::size_t>(a.max_new_tokens)](const TokenPath& path) {
            const std::span<const TokenId> seen = path;
            return seen.size() < first ? after({0}, seen) : after({1}, seen.subspan(first));
          },
          a.sampling};
}

// One of two texts with the same noise: `which`.
inline Program twin(const GenerateOptions& options, std::size_t which) {
  return {
      "twin",
      [options, which](Engine& engine) {
        const std::vector<Request> requests = {request_of({0}, options), request_of({1}, options)};
        return TokenPath(only(engine.generate(requests)[which]).tokens);
      },
      [which](const TokenPath& path) { return after({static_cast<TokenId>(which)}, path); },
      options.sampling};
}

// A text up to "b" or two tokens, and one token more behind what is left.
inline Program stopped(GenerateOptions options, const std::string& stop) {
  options.stop = {stop};
  std::vector<TokenId> of_stop;
  for (const char letter : stop) of_stop.push_back(letter - 'a');
  // Tokens of the first text that are left: what a stop text ended is taken back.
  const auto kept = [of_stop](std::span<const TokenId> seen) {
    const auto at = std::search(seen.begin(), seen.end(), of_stop.begin(), of_stop.end());
    return at == seen.end() ? -1 : at - seen.begin();
  };
  const auto most = static_cast<std::size_t>(options.max_new_tokens);
  return {"stopped at " + stop,
          [=](Engine& engine) {
            Sequence sequence = engine.new_sequence();
            const Generation first = sequence.generate(std::vector<TokenId>{0}, options);
            TokenPath seen = first.tokens;
            if (first.finish_reason == FinishReason::stop) add(seen, of_stop);
            GenerateOptions more = options;
            more.stop.clear();
            more.max_new_tokens = 2;
            add(seen, sequence.generate(std::vector<TokenId>{}, more).tokens);
            return seen;
          },
          [=](const TokenPath& path) {
            const std::span<const TokenId> seen = path;
            const auto of_first = seen.first(std::min(seen.size(), most));
            const std::ptrdiff_t left = kept(of_first);
            if (left < 0) return after({0}, seen);
            const auto end = static_cast<std::size_t>(left) + of_stop.size();
            return after(after({0}, seen.first(static_cast<std::size_t>(left))), seen.subspan(end));
          },
          options.sampling};
}

// One sampled text beside so many greedy ones, which take all memory, so that it is preempted.
// `preempted` counts how often, over all paths.
inline constexpr std::size_t greedy_texts = 50;
inline Program preempted(const GenerateOptions& options, std::int64_t& preempted) {
  return {"preempted",
          [options, &preempted](Engine& engine) {
            std::vector<Request> requests;
            for (std::size_t t = 0; t < greedy_texts; ++t) {
              GenerateOptions greedy = sampled(24, Dyspec{2}, 100 + t);
              greedy.sampling.temperature = 0.0;
              // Different texts of four letters.
              const auto letter = [t](std::size_t of) { return static_cast<TokenId>(t / of % 3); };
              const std::vector<TokenId> prompt = {static_cast<TokenId>(t / 27), letter(9),
                                                   letter(3), letter(1)};
              requests.push_back(request_of(prompt, greedy));
            }
            requests.push_back(request_of({2}, options));
            const Generation g = only(engine.generate(requests).back());
            preempted += g.statistics.preemptions;
            return TokenPath(g.tokens);
          },
          [](const TokenPath& path) { return after({2}, path); }, options.sampling};
}

// Two turns, between which another text takes all memory. `cached`: most of the text's tokens that
// were still there.
inline Program evicted(const GenerateOptions& options, std::int32_t& cached) {
  return {"evicted",
          [options, &cached](Engine& engine) {
            Sequence sequence = engine.new_sequence();
            TokenPath seen = sequence.generate(std::vector<TokenId>{0, 1}, options).tokens;
            GenerateOptions greedy = sampled(1, Plain{}, 9);
            greedy.sampling.temperature = 0.0;
            engine.generate(std::vector<TokenId>(31, 2), greedy);
            const Generation g = sequence.generate(std::vector<TokenId>{}, options);
            cached = std::max(cached, g.statistics.cached_tokens);
            add(seen, g.tokens);
            return seen;
          },
          [](const TokenPath& path) {
            return after({0, 1}, path);
          },
          options.sampling};
}

class EnumeratedLaw : public ::testing::Test {
 protected:
  void SetUp() override {
    if (on_cuda()) GTEST_SKIP() << "decisions are enumerated on the host";
  }
  static void expect_law(EnumeratedEngine& engine, const Program& program, std::int32_t trees = 1) {
    const LawError error = engine.error(program);
    std::cout << program.name << ": " << error.text() << "\n";
    EXPECT_LE(error.largest, tolerance) << program.name << ": " << error.text();
    EXPECT_NEAR(error.total, 1.0, 1e-12) << program.name;
    EXPECT_GE(error.largest_tree, trees) << program.name << " is to grow trees";
  }
  static void expect_noticed(EnumeratedEngine& engine, const Program& program,
                             const std::string& fault) {
    const LawError error = engine.error(program);
    std::cout << fault << ", " << program.name << ": " << error.text() << "\n";
    EXPECT_GE(error.largest, noticed) << fault << " was not noticed: " << error.text();
  }
  static SamplingParams penalised() {
    SamplingParams params{1.0};
    params.repetition_penalty = 1.8;
    return params;
  }

  const ThreeLetters pair_;
};

// The answer is made of "ab", "ba", "ca" and "cc": behind every other letter a mask leaves one or
// two of the three.
inline bool is_ruled_pair(char first, char second) {
  switch (first) {
    case 'a':
      return second == 'b';
    case 'b':
      return second == 'a';
    default:
      return second != 'b';
  }
}

inline bool may_follow(std::span<const TokenId> answer, TokenId token) {
  return answer.size() % 2 == 0 ||
         is_ruled_pair(static_cast<char>('a' + answer.back()), static_cast<char>('a' + token));
}

// Of several texts' tokens, each of `each` tokens behind `first` others.
inline Program ruled(Program program, std::size_t each, std::size_t first = 0) {
  program.name += ", ruled";
  program.allows = [each, first](const TokenPath& path, TokenId token) {
    const std::span<const TokenId> seen = path;
    if (seen.size() < first) return may_follow(seen, token);
    return may_follow(seen.subspan(first + (seen.size() - first) / each * each), token);
  };
  return program;
}

}  // namespace coppice::testing
