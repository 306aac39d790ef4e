// The shipped pair: speculation must not change a token. Greedy text is compared with plain
// greedy text, coupled text with plain coupled text of the same seed. On the CPU they are equal
// with all logprobs, bit by bit. bf16 sums up in an order that depends on the pass: there logits
// differ by rounding; a difference in a token is a near-tie where the two candidates' scores differ
// by less than that rounding allows, and is counted. The comparison then starts again from the
// plain text.
#include <gtest/gtest.h>

#include <fstream>
#include <iostream>

#include "engine/near_tie.h"
#include "engine/pair.h"
#include "kernels/cpu/instruction_set.h"
#include "reference/quick.h"

namespace coppice::testing {
namespace {

constexpr int new_tokens = quick ? 64 : 128;

struct Case {
  CpuDtype dtype;
  bool coupled;
  int threads;
  /// For bf16, a bound on the rounding of a difference of two logits: activations are rounded to 8
  /// bits before each of 20 products (relative 2^-9 each, errors adding as a random walk:
  /// 2^-9 * sqrt(20) * about 10 of logit spread = 0.09), twice for a difference. 0: same bits.
  double tolerance = 0.0;
  KvDtype kv_dtype = KvDtype::automatic;
  WeightRounding weights = WeightRounding::keep;  ///< of both models
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << name_of(c.dtype) << " KV " << name_of(c.kv_dtype) << ", weights "
             << name_of(c.weights) << (c.coupled ? " coupled" : " greedy");
}

/// Counts prompts: two of each turn, or one where only storage, rounding or the number of ranks
/// differs from cases that have two. Quick builds have one.
int prompts_of(const Case& c) {
  const bool stored_alike = c.kv_dtype == KvDtype::automatic && c.weights == WeightRounding::keep;
  return !quick && test_ranks() == 1 && stored_alike && c.dtype != CpuDtype::bf16 ? 16 : 8;
}

const std::vector<Speculation> turns = {
    Dyspec{},
    Dyspec{24},
    Chain{6},
    DyspecThreshold{0.05, 16},
    SpecInfer{20},
    Sequoia{24, 0, {}},
    StaticTree{{{0}, {1}, {2}, {0, 0}, {0, 1}, {1, 0}, {0, 0, 0}}},
    ExpandRerank{16},
};

class Identity : public ::testing::TestWithParam<Case> {};

TEST_P(Identity, TokensEqualPlainDecoding) {
  const Case& c = GetParam();
  if (on_cuda() && c.dtype == CpuDtype::f32) GTEST_SKIP() << "the GPU computes in bf16";
  if (!on_cuda() && c.dtype == CpuDtype::bf16 && !cpu::has_native_bf16()) {
    GTEST_SKIP() << "this processor does not multiply bf16";
  }
  EngineOptions load = shipped_options(c.dtype, c.threads);
  load.kv_dtype = c.kv_dtype;
  load.target_weights = load.draft_weights = c.weights;
  Engine engine = Engine::load(load);
  GenerateOptions options;
  options.sampling.temperature = c.coupled ? 0.8 : 0.0;
  options.acceptance = c.coupled ? Acceptance::coupled : Acceptance::rejection;
  options.ignore_eos = true;
  options.logprobs = true;
  options.seed = 11;

  const double tolerance = on_cuda() ? largest_near_tie(options) : c.tolerance;
  const int prompt_count = prompts_of(c);
  const auto all = prompts();
  ASSERT_EQ(all.size(), 100u);
  std::int64_t tokens = 0, flips = 0;
  double largest_gap = 0.0;
  double accepted = 0.0;
  for (int i = 0; i < prompt_count; ++i) {
    // From all over the set, which is in order of kinds.
    const auto prompt = static_cast<std::size_t>(i) * all.size() / prompt_count;
    std::vector<TokenId> text = engine.tokenize(all[prompt]);
    options.max_new_tokens = new_tokens;
    options.speculation = Plain{};
    const Generation plain = engine.generate(text, options);
    ASSERT_EQ(plain.tokens.size(), static_cast<std::size_t>(new_tokens));
    // Fixed sizes, the automatic one and other policies take turns.
    options.speculation = turns[static_cast<std::size_t>(i) % turns.size()];

    std::size_t done = 0;  // plain tokens that were reached
    while (done < plain.tokens.size()) {
      options.max_new_tokens = static_cast<std::int32_t>(plain.tokens.size() - done);
      const Generation fast = engine.generate(text, options);
      accepted += fast.statistics.accepted_length / prompt_count;
      std::size_t same = 0;
      while (same < fast.tokens.size() && fast.tokens[same] == plain.tokens[done + same]) {
        if (tolerance == 0.0) {
          ASSERT_EQ(fast.logprobs[same].logprob, plain.logprobs[done + same].logprob)
              << "prompt " << prompt << ", token " << done + same;
        }
        ++same;
      }
      tokens += static_cast<std::int64_t>(same);
      if (done + same == plain.tokens.size()) break;
      ASSERT_LT(same, fast.tokens.size()) << "the text ended early";
      const std::size_t at = done + same;
      ASSERT_GT(tolerance, 0.0) << "prompt " << prompt << " parts at token " << at;
      const TokenLogprob& mine = plain.logprobs[at];
      const TokenLogprob& other = fast.logprobs[same];
      const double gap = near_tie(options, text.size() + same, engine.vocab_size(), mine, other);
      largest_gap = std::max(largest_gap, gap);
      EXPECT_LT(gap, tolerance) << "prompt " << prompt << ", token " << at << ": " << other.token
                                << " instead of " << mine.token;
      ++flips;
      text.insert(text.end(), plain.tokens.begin() + static_cast<std::ptrdiff_t>(done),
                  plain.tokens.begin() + static_cast<std::ptrdiff_t>(at + 1));
      done = at + 1;
    }
  }
  std::cout << "[ " << c << " ] " << tokens << " tokens equal, " << flips
            << " near-ties, largest gap " << largest_gap << ", accepted length about " << accepted
            << "\n";
  EXPECT_GT(tokens, prompt_count * new_tokens * 9 / 10);
  RecordProperty("near_ties", static_cast<int>(flips));
}

INSTANTIATE_TEST_SUITE_P(
    Shipped, Identity,
    ::testing::Values(
        Case{CpuDtype::f32, false, 1}, Case{CpuDtype::bf16, false, 2, 0.2},
        Case{CpuDtype::f32, true, 2}, Case{CpuDtype::bf16, true, 1, 0.25},
        Case{CpuDtype::f32, false, 2, 0, KvDtype::bf16},
        Case{CpuDtype::f32, true, 1, 0, KvDtype::f16},
        Case{CpuDtype::automatic, false, 2, 0, KvDtype::automatic, WeightRounding::q8_0},
        Case{CpuDtype::automatic, true, 1, 0, KvDtype::automatic, WeightRounding::q4_k},
        Case{CpuDtype::automatic, false, 1, 0, KvDtype::automatic, WeightRounding::fp8},
        Case{CpuDtype::automatic, true, 2, 0, KvDtype::automatic, WeightRounding::int4},
        Case{CpuDtype::f32, false, 1, 0, KvDtype::automatic, WeightRounding::q4_k}),
    [](const auto& one) {
      const std::string kv = name_of(one.param.kv_dtype);
      const std::string weights = name_of(one.param.weights);
      return name_of(one.param.dtype) + (kv == "auto" ? "" : "_kv_" + kv) +
             (weights == "keep" ? "" : "_weights_" + weights) +
             (one.param.coupled ? "_coupled" : "_greedy");
    });

}  // namespace
}  // namespace coppice::testing
