// Every KV slot of both models is in the tree once, or free, after every one of many random
// operations in little memory: sequences that begin, go on, fork, go back and die, prefixes,
// batches of everything, cancellations, failures of each kind. COPPICE_RANDOM_OPERATIONS says how
// many (by default few enough for every run of the tests; 1000000 take some minutes).
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <optional>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "engine/access.h"
#include "engine/batch_requests.h"
#include "engine/sequence_impl.h"
#include "planted/planted.h"
#include "reference/sanitized.h"

namespace coppice::testing {
namespace {

constexpr long usual_operations = sanitized ? 600 : 6000;

long operations() {
  const char* asked = std::getenv("COPPICE_RANDOM_OPERATIONS");
  if (asked != nullptr) return std::atol(asked);
  return on_cuda() ? usual_operations / 4 : usual_operations;
}

TinyModel smallest() {
  TinyModel model;
  model.vocab_size = 24;
  model.hidden_size = 16;
  model.intermediate_size = 16;
  model.layers = 1;
  model.heads = 2;
  model.kv_heads = 1;
  model.head_dim = 8;
  model.context_length = 160;  // a sequence may outgrow all memory
  return model;
}

struct Planned : std::runtime_error {
  Planned() : std::runtime_error("planned") {}
};

class ThrowsPlanned final : public CustomPolicy {
 public:
  std::vector<std::int32_t> grow(GrowingTree& tree, std::span<const std::int32_t>) override {
    static_cast<void>(tree.draw(0));
    throw Planned();
  }
};

class RandomOperations {
 public:
  RandomOperations(Engine& engine, std::uint32_t seed) : engine_(engine), random_(seed) {}

  void next() {
    switch (below(12)) {
      case 0: {
        std::optional<Sequence>& one = sequences_[below(sequences_.size())];
        one.emplace(engine_.new_sequence());
        return;
      }
      case 1:
        sequences_[below(sequences_.size())].reset();
        return;
      case 2: {
        const std::optional<Sequence>& from = sequences_[below(sequences_.size())];
        if (!from) return;
        Sequence fork = from->fork();
        sequences_[below(sequences_.size())].emplace(std::move(fork));
        return;
      }
      case 3: {
        std::optional<Sequence>& one = sequences_[below(sequences_.size())];
        if (one) one->rewind(static_cast<std::int32_t>(below(one->tokens().size() + 1)));
        return;
      }
      case 4:
        return pin();
      case 5:
        if (below(4) == 0) engine_.drop_cache();
        return;
      default:
        return write(1 + below(7));
    }
  }

  void expect_right() const {
    inside(engine_).cache->validate();
    const CacheStatistics cache = engine_.cache();
    ASSERT_EQ(cache.target_free + cache.target_shared, cache.target_slots);
    ASSERT_EQ(cache.draft_free + cache.draft_shared, cache.draft_slots);
    for (const auto& one : sequences_) {
      if (!one) continue;
      const SequenceState& state = SequenceAccess::impl(*one)->state;
      ASSERT_EQ(state.target_kv() + state.draft_kv(), 0) << "a sequence holds KV between calls";
    }
    const std::vector<TokenId> pinned =
        prefix_ ? std::vector<TokenId>(prefix_->tokens().begin(), prefix_->tokens().end())
                : std::vector<TokenId>();
    ASSERT_EQ(inside(engine_).cache->match(pinned), std::ssize(pinned));
  }
  void drop_all() {
    for (auto& one : sequences_) one.reset();
    prefix_.reset();
  }
  std::int64_t written = 0, cancelled = 0, failed = 0, out_of_memory = 0, preempted = 0;
  std::int64_t cached = 0;  ///< tokens of prompts

 private:
  // A prefix and a sequence that begins with it. Short prompts leave room for others.
  void pin() {
    prefix_.reset();
    if (below(2) == 0) return;
    prefix_.emplace(engine_.prefix(random_tokens(1 + below(12), 24, random_())));
    sequences_[below(sequences_.size())].emplace(prefix_->begin());
  }

  std::size_t below(std::size_t end) { return random_() % end; }

  GenerateOptions any_options() {
    GenerateOptions options;
    options.max_new_tokens = 1 + static_cast<std::int32_t>(below(40));
    const auto rule = static_cast<Rule>(below(3));
    options.speculation = speculation_of(rule, below(16));
    if (below(20) == 0) {
      options.speculation = Custom{[] { return std::make_unique<ThrowsPlanned>(); }};
    }
    options.acceptance = rule == Rule::coupled ? Acceptance::coupled : Acceptance::rejection;
    options.sampling.temperature = rule == Rule::greedy ? 0.0 : 0.8;
    options.logprobs = below(8) == 0;
    options.seed = ++seed_;  // nobody else's
    return options;
  }

  // Some requests of every kind, in one call.
  void write(std::size_t count) {
    std::vector<Request> requests;
    std::vector<int> uses(sequences_.size(), 0);
    std::vector<std::size_t> sequence_of(count, sequences_.size());
    for (std::size_t i = 0; i < count; ++i) {
      requests.push_back(request_of(random_tokens(1 + below(12), 24, random_()), any_options()));
      Request& request = requests.back();
      const std::size_t which = below(sequences_.size());
      if (below(2) == 0 && sequences_[which]) {
        request.sequence = &*sequences_[which];  // others may go on with it, too: they fail
        sequence_of[i] = which;
        ++uses[which];
      } else {
        request.n = 1 + static_cast<std::int32_t>(below(4) == 0 ? below(4) : 0);
      }
      switch (below(16)) {
        case 0:
          request.tokens.clear();
          break;
        case 1:
          request.tokens.push_back(24);
          break;
        case 2:
          request.n = 0;
          break;
        case 3:
        case 4:
          request.callback = [left = below(6)](std::int32_t, const Piece&) mutable {
            return left-- > 0;
          };
          break;
        case 5:
          request.callback = [left = below(6)](std::int32_t, const Piece&) mutable {
            if (left-- == 0) throw Planned();
            return true;
          };
          break;
        case 6:
          if (nested_) break;
          request.callback = [this, left = below(6)](std::int32_t, const Piece&) mutable {
            if (left-- == 0) write_within();
            return true;
          };
          break;
        default:
          break;
      }
    }
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t which = sequence_of[i];
      if (which == sequences_.size() || uses[which] > 1 || below(8) != 0) continue;
      requests[i].callback = [this, which](std::int32_t, const Piece&) {
        sequences_[which].reset();  // a callback may destroy its sequence
        return true;
      };
    }
    const std::size_t thrown_at = below(30);
    try {
      engine_.generate(requests, [&](std::size_t index, Outcome& outcome) {
        take_note(outcome);
        if (index == thrown_at) throw Planned();
      });
    } catch (const Planned&) {
      ++failed;
    }
  }

  // A call in a callback of another, with sequences of its own: those there may be under way.
  void write_within() {
    nested_ = true;
    std::vector<std::optional<Sequence>> others(sequences_.size());
    std::swap(others, sequences_);
    sequences_[0].emplace(engine_.new_sequence());
    write(1 + below(3));
    std::swap(others, sequences_);
    nested_ = false;
  }

  void take_note(const Outcome& outcome) {
    if (outcome.error) {
      ++failed;
      try {
        std::rethrow_exception(outcome.error);
      } catch (const Planned&) {
      } catch (const Error& error) {
        const std::string says = error.what();
        EXPECT_TRUE(error.kind() == ErrorKind::usage ||
                    says.find("planned") != std::string::npos ||       // a policy
                    says.find("tokenizer.json") != std::string::npos)  // no tokens
            << says;
      }
    }
    for (const Generation& g : outcome.samples) {
      written += static_cast<std::int64_t>(g.tokens.size());
      cancelled += g.finish_reason == FinishReason::cancelled ? 1 : 0;
      out_of_memory += g.finish_reason == FinishReason::memory ? 1 : 0;
      preempted += g.statistics.preemptions;
      cached += g.statistics.cached_tokens;
    }
  }

  Engine& engine_;
  std::mt19937 random_;
  bool nested_ = false;
  std::uint64_t seed_ = 0;
  std::optional<Prefix> prefix_;
  std::vector<std::optional<Sequence>> sequences_ = std::vector<std::optional<Sequence>>(5);
};

// No slot belongs to two of the texts that share a step; no step's noise is used twice, preempted
// or not.
class StepWatch {
 public:
  explicit StepWatch(Engine& engine) {
    inside(engine).observer = [this, &engine](const StepView& view) {
      if (inside(engine).target_runner->passes() !=
          std::exchange(pass_, inside(engine).target_runner->passes())) {
        target_.clear();
        draft_.clear();
      }
      look(view.state.target_slots, target_);
      look(view.state.draft_slots, draft_);
      const StepKey& key = view.key;
      if (!keys_.insert({key.seed, key.sequence, key.step}).second) ++noise_used_again;
      ++views;
    };
  }
  void begin_operation() { keys_.clear(); }
  std::int64_t views = 0, noise_used_again = 0;

 private:
  static void look(const KvSlots& slots, std::set<KvSlot>& seen) {
    for (const KvSlot slot : slots.all()) {
      EXPECT_TRUE(slot == no_slot || seen.insert(slot).second) << "of two texts";
    }
  }
  std::int64_t pass_ = 0;
  std::set<KvSlot> target_, draft_;
  std::set<std::array<std::uint64_t, 3>> keys_;
};

EngineOptions little_memory(const TinyPair& pair) {
  EngineOptions load = pair.options();
  load.kv_tokens = 128;
  load.max_sequences = 5;
  load.max_tree_size = 24;
  load.max_batch_rows = 40;
  return load;
}

TEST(BatchSlots, AreOwnedOnceOrFree) {
  const TinyPair pair(smallest());
  Engine engine = Engine::load(little_memory(pair));
  StepWatch watch(engine);
  RandomOperations random(engine, 3);
  const long count = operations();
  for (long operation = 0; operation < count; ++operation) {
    watch.begin_operation();
    random.next();
    random.expect_right();
    ASSERT_EQ(watch.noise_used_again, 0);
    ASSERT_FALSE(::testing::Test::HasFailure()) << "operation " << operation;
  }
  random.drop_all();
  expect_nothing_leaked(engine);
  std::cout << count << " operations: " << random.written << " tokens, " << random.cancelled
            << " cancelled, " << random.failed << " failed, " << random.out_of_memory
            << " out of memory, " << random.preempted << " preempted, " << random.cached
            << " tokens cached, " << engine.cache().evicted_tokens << " evicted\n";
  EXPECT_GT(random.written, count);
  EXPECT_GT(watch.views, count);
  EXPECT_GT(random.cancelled, 0);
  EXPECT_GT(random.failed, 0);
  EXPECT_GT(random.out_of_memory, 0);
  EXPECT_GT(random.preempted, 0);
  EXPECT_GT(random.cached, count);
  EXPECT_GT(engine.cache().evicted_tokens, count);
}

// What the test above must notice.
TEST(BatchSlots, NoiseThatAPreemptedTextUsesAgainIsNoticed) {
  const TinyPair pair(smallest());
  Engine engine = Engine::load(little_memory(pair));
  const Planted planted(Fault::preempted_noise_is_reused);
  StepWatch watch(engine);
  RandomOperations random(engine, 3);
  for (long operation = 0; operation < 1000 && watch.noise_used_again == 0; ++operation) {
    watch.begin_operation();
    random.next();
  }
  EXPECT_GT(random.preempted, 0);
  EXPECT_GT(watch.noise_used_again, 0);
}

}  // namespace
}  // namespace coppice::testing
