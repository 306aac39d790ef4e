// Texts that share what they begin with are what each is alone, without a tree of KV: beginnings
// that are cached, forks, rewinds, prefixes, cancellations and preemptions at random, by several
// threads. Token for token up to near-ties, which are counted and bounded as in identity_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "engine/access.h"
#include "engine/batch_requests.h"
#include "engine/endless_pair.h"
#include "engine/near_tie.h"
#include "engine/sequence_impl.h"
#include "planted/planted.h"
#include "reference/pass_faults.h"
#include "reference/sanitized.h"

namespace coppice::testing {
namespace {

/// What was done with a text, and what came of it.
struct Deed {
  enum class Kind { begin, fork, rewind, write } kind = Kind::begin;
  std::size_t text = 0, from = 0;  ///< forked from
  std::int32_t length = 0;         ///< rewound to
  Request request = {};            ///< its prompt behind a prefix, if it begins with one
  Generation written = {};
};

struct Totals {
  std::int64_t tokens = 0, near_ties = 0, wrong = 0;
  std::int64_t cached = 0, preempted = 0, cancelled = 0, forks = 0, rewinds = 0, prefixes = 0;
  double largest_batch = 0.0;
};

/// One thread's texts. What it does depends on nothing but its seed and the tokens that come.
class Author {
 public:
  static constexpr std::size_t texts = 16;

  /// Writes up to `most` tokens at a time.
  Author(Engine& engine, Rule rule, std::vector<TokenId> source, std::size_t most,
         std::uint32_t seed)
      : engine_(engine),
        rule_(rule),
        source_(std::move(source)),
        most_(most),
        random_(seed),
        seed_(seed) {}

  void next() {
    const std::size_t which = below(texts);
    switch (below(8)) {
      case 0:
      case 1:
        return fork(which);
      case 2:
        return rewind(which);
      case 3:
        return pin(which);
      case 4:
        if (below(3) == 0) engine_.drop_cache();
        return;
      default:
        return write(1 + below(texts));
    }
  }
  void end() {
    for (auto& sequence : sequences_) sequence.reset();
    prefix_.reset();
  }
  std::vector<Deed> deeds;
  std::int64_t prefixes = 0;

 private:
  std::size_t below(std::size_t end) { return random_() % end; }
  // Several texts begin with the same tokens, some of these with the same tokens again.
  std::vector<TokenId> beginning() {
    const auto part = [&](std::size_t begin, std::size_t size) {
      return std::vector<TokenId>(source_.begin() + static_cast<std::ptrdiff_t>(begin),
                                  source_.begin() + static_cast<std::ptrdiff_t>(begin + size));
    };
    std::vector<TokenId> tokens = part(0, below(4) == 0 ? 30 : 70);
    if (below(4) == 0) tokens = part(200, 1 + below(20));
    if (below(2) == 0) {
      const std::vector<TokenId> more = part(70 + 20 * below(3), 15 + below(20));
      tokens.insert(tokens.end(), more.begin(), more.end());
    }
    return tokens;
  }
  std::vector<TokenId> some() {
    const auto at = source_.begin() + static_cast<std::ptrdiff_t>(below(source_.size() - 8));
    return {at, at + static_cast<std::ptrdiff_t>(1 + below(6))};
  }
  void log(Deed deed) { deeds.push_back(std::move(deed)); }

  void begin(std::size_t which) {
    sequences_[which].emplace(engine_.new_sequence());
    log({Deed::Kind::begin, which});
  }
  void fork(std::size_t which) {
    const std::size_t from = below(texts);
    if (from == which || !sequences_[from]) return;
    Sequence twin = sequences_[from]->fork();
    sequences_[which].emplace(std::move(twin));
    pinned_[which] = pinned_[from];
    log({Deed::Kind::fork, which, from});
  }
  void rewind(std::size_t which) {
    if (!sequences_[which] || !pinned_[which].empty()) return;
    if (sequences_[which]->tokens().size() < 2) return;
    const auto length = static_cast<std::int32_t>(1 + below(sequences_[which]->tokens().size()));
    sequences_[which]->rewind(length);
    log({Deed::Kind::rewind, which, 0, length});
  }
  // The text that begins with it has its tokens in front of its first prompt.
  void pin(std::size_t which) {
    prefix_.reset();
    if (below(3) == 0) return;
    prefix_.emplace(engine_.prefix(beginning()));
    ++prefixes;
    begin(which);
    sequences_[which].emplace(prefix_->begin());
    pinned_[which] = {prefix_->tokens().begin(), prefix_->tokens().end()};
  }

  GenerateOptions options() {
    GenerateOptions o;
    o.max_new_tokens = 1 + static_cast<std::int32_t>(below(most_));
    o.speculation = speculation_of(rule_, below(16));
    o.acceptance = rule_ == Rule::coupled ? Acceptance::coupled : Acceptance::rejection;
    if (rule_ == Rule::coupled) o.sampling.temperature = 0.8;
    if (below(3) == 0) o.sampling.repetition_penalty = 1.2;
    o.ignore_eos = true;
    o.logprobs = true;
    o.seed = seed_;
    o.stream = ++stream_;
    return o;
  }

  void write(std::size_t count) {
    std::vector<std::size_t> order(texts);
    for (std::size_t t = 0; t < texts; ++t) order[t] = t;
    std::shuffle(order.begin(), order.end(), random_);
    order.resize(count);
    std::vector<Request> requests;
    std::vector<std::vector<TokenId>> prompts;
    for (const std::size_t which : order) {
      if (!sequences_[which] || sequences_[which]->tokens().size() > 110) {
        pinned_[which].clear();
        begin(which);
      }
      const bool fresh = sequences_[which]->tokens().empty();
      requests.push_back(request_of(fresh ? beginning() : some(), options()));
      requests.back().sequence = &*sequences_[which];
      prompts.push_back(std::exchange(pinned_[which], {}));
      prompts.back().insert(prompts.back().end(), requests.back().tokens.begin(),
                            requests.back().tokens.end());
      if (below(5) != 0) continue;
      requests.back().callback = [left = below(10)](std::int32_t, const Piece& piece) mutable {
        const bool goes_on = piece.tokens.size() <= left;
        left -= std::min(left, piece.tokens.size());
        return goes_on;
      };
    }
    const std::vector<Outcome> outcomes = engine_.generate(requests);
    for (std::size_t i = 0; i < count; ++i) {
      Deed deed{Deed::Kind::write, order[i]};
      deed.request = request_of(prompts[i], requests[i].options);
      deed.written = only(outcomes[i]);
      log(std::move(deed));
    }
  }

  Engine& engine_;
  const Rule rule_;
  const std::vector<TokenId> source_;
  const std::size_t most_;
  std::mt19937 random_;
  const std::uint64_t seed_;
  std::uint64_t stream_ = 0;
  std::optional<Prefix> prefix_;
  std::optional<Sequence> sequences_[texts];
  std::vector<TokenId> pinned_[texts];  ///< a prefix that is in no prompt yet
};

// Does all of it again where nothing is shared and nobody speculates, a text at a time.
void compare_deeds(const std::vector<Deed>& deeds, Engine& plain, Totals& totals) {
  std::map<std::size_t, std::optional<Sequence>> alone;  // empty: it has differed
  for (const Deed& deed : deeds) {
    std::optional<Sequence>& text = alone[deed.text];
    if (deed.kind == Deed::Kind::begin) {
      text.emplace(plain.new_sequence());
    } else if (deed.kind == Deed::Kind::fork) {
      std::optional<Sequence>& from = alone[deed.from];
      text.reset();
      if (from) text.emplace(from->fork());
      ++totals.forks;
    } else if (deed.kind == Deed::Kind::rewind) {
      if (text && deed.length <= std::ssize(text->tokens())) text->rewind(deed.length);
      ++totals.rewinds;
    } else {
      const Generation& mine = deed.written;
      totals.cached += mine.statistics.cached_tokens;
      totals.preempted += mine.statistics.preemptions;
      totals.largest_batch = std::max(totals.largest_batch, mine.statistics.batch_mean);
      totals.cancelled += mine.finish_reason == FinishReason::cancelled ? 1 : 0;
      EXPECT_NE(mine.finish_reason, FinishReason::memory);
      if (!text) continue;
      GenerateOptions options = deed.request.options;
      options.speculation = Plain{};
      options.max_new_tokens = static_cast<std::int32_t>(mine.tokens.size());
      const std::uint64_t epoch = SequenceAccess::impl(*text)->state.epoch;
      const std::size_t before = text->tokens().size() + deed.request.tokens.size();
      const Generation other = text->generate(deed.request.tokens, options);
      const auto parts = std::mismatch(mine.tokens.begin(), mine.tokens.end(), other.tokens.begin(),
                                       other.tokens.end());
      const auto same = static_cast<std::size_t>(parts.first - mine.tokens.begin());
      totals.tokens += static_cast<std::int64_t>(same);
      if (same == mine.tokens.size() && same == other.tokens.size()) continue;
      text.reset();
      if (same == mine.tokens.size() || same == other.tokens.size()) {
        ++totals.wrong;
        continue;
      }
      const double gap = near_tie(options, (before + same) | epoch << 32, plain.vocab_size(),
                                  other.logprobs[same], mine.logprobs[same]);
      ++(gap < largest_near_tie(options) ? totals.near_ties : totals.wrong);
    }
  }
}

struct CacheCase {
  Rule rule;
  bool scarce;  ///< two authors in memory for few texts; else four in memory for all
};

class CacheIdentity : public ::testing::TestWithParam<CacheCase> {
 protected:
  CacheIdentity() {
    load_.kv_tokens = GetParam().scarce ? 420 : 8192;
    load_.max_tree_size = 16;
    EngineOptions plain = load_;
    plain.kv_tokens = 2048;
    plain.prefix_cache = false;
    plain_.emplace(Engine::load(plain));
    if (on_cuda()) {
      for (const std::string& one : prompts()) {
        const std::vector<TokenId> tokens = plain_->tokenize(one);
        source_.insert(source_.end(), tokens.begin(), tokens.end());
      }
      source_.resize(300);
    } else {
      source_ = random_tokens(300, 96, 3);
    }
  }

  Totals write(Engine& engine, std::size_t authors, int turns) {
    std::vector<std::unique_ptr<Author>> all;
    for (std::size_t a = 0; a < authors; ++a) {
      all.push_back(std::make_unique<Author>(engine, GetParam().rule, source_,
                                             GetParam().scarce ? 60u : 24u,
                                             100 + static_cast<std::uint32_t>(a)));
    }
    std::vector<std::thread> threads;
    for (const auto& author : all) {
      threads.emplace_back([&] {
        for (int turn = 0; turn < turns; ++turn) author->next();
        author->end();
      });
    }
    for (std::thread& thread : threads) thread.join();
    Totals totals;
    for (const auto& author : all) {
      totals.prefixes += author->prefixes;
      compare_deeds(author->deeds, *plain_, totals);
    }
    return totals;
  }

  const TinyPair pair_{endless()};
  // Candidates of a random model nearly tie in bf16.
  EngineOptions load_ = on_cuda() ? shipped_options() : pair_.options();
  std::optional<Engine> plain_;
  std::vector<TokenId> source_;
};

INSTANTIATE_TEST_SUITE_P(
    Rules, CacheIdentity,
    ::testing::Values(CacheCase{Rule::greedy, false}, CacheCase{Rule::coupled, false},
                      CacheCase{Rule::greedy, true}, CacheCase{Rule::coupled, true}),
    [](const auto& given) {
      return std::string(name_of(given.param.rule)) + (given.param.scarce ? "_scarce" : "");
    });

TEST_P(CacheIdentity, EveryTextIsWhatItIsAlone) {
  Engine engine = Engine::load(load_);
  const bool scarce = GetParam().scarce;
  // On a GPU enough tokens that the number of near-ties does not pass their bound by chance.
  const int turns = sanitized ? 12 : scarce && on_cuda() ? 600 : 60;
  const Totals t = write(engine, scarce ? 2 : 4, turns);
  const CacheStatistics cache = engine.cache();
  std::cout << t.tokens << " tokens, " << t.near_ties << " near-ties, " << t.cached << " cached, "
            << t.forks << " forks, " << t.rewinds << " rewinds, " << t.prefixes << " prefixes, "
            << t.cancelled << " cancelled, " << t.preempted << " preempted, "
            << cache.evicted_tokens << " evicted, up to " << t.largest_batch
            << " texts a step on average\n";
  EXPECT_EQ(t.wrong, 0);
  EXPECT_LE(t.near_ties, most_near_ties(t.tokens));
  EXPECT_GT(t.tokens, 20 * turns);
  EXPECT_GT(t.largest_batch, scarce ? 1.5 : 16.0);
  EXPECT_GT(t.cached, 0);
  if (!sanitized) {  // not every kind comes up in its few turns
    for (const std::int64_t count : {t.forks, t.rewinds, t.prefixes, t.cancelled}) {
      EXPECT_GT(count, 0);
    }
  }
  if (scarce) {
    EXPECT_GT(t.preempted, 0);
    EXPECT_GT(cache.evicted_tokens, 0);
  }
  expect_nothing_leaked(engine);
}

// What it must notice.
TEST_P(CacheIdentity, FaultsAreNoticed) {
  if (sanitized || GetParam().scarce) GTEST_SKIP() << "runs the code of the test above";
  {
    Engine engine = Engine::load(load_);
    EngineAccess access(engine);
    for (const PassFault fault : {PassFault::shared_by_neighbour, PassFault::rope_by_index,
                                  PassFault::position_of_neighbour}) {
      access.change_passes(faulty_passes(fault));
      EXPECT_GT(write(engine, 1, 20).wrong, 0) << static_cast<int>(fault);
      engine.drop_cache();
    }
    access.change_passes({});
    EXPECT_EQ(write(engine, 1, 20).wrong, 0);
  }
  Engine engine = Engine::load(load_);
  const Planted planted(Fault::stale_slots);
  EXPECT_GT(write(engine, 1, 20).wrong, 0) << "slots as they were before a split";
}

}  // namespace
}  // namespace coppice::testing
