// What an engine takes of the host's memory does not grow with the texts that it has written.
// COPPICE_RANDOM_OPERATIONS says how many (by default few enough for every run of the tests; 100000
// take about a minute).
#include <gtest/gtest.h>
#include <malloc.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <utility>
#include <vector>

#include "engine/batch_requests.h"
#include "engine/endless_pair.h"
#include "reference/sanitized.h"

namespace coppice::testing {
namespace {

long texts_in_all() {
  const char* asked = std::getenv("COPPICE_RANDOM_OPERATIONS");
  constexpr long usual = 6000;
  return asked != nullptr ? std::max(usual, std::atol(asked)) : usual;
}

/// Bytes of all blocks that are in use.
std::int64_t bytes_in_use() {
  const struct mallinfo2 info = mallinfo2();
  return static_cast<std::int64_t>(info.uordblks + info.hblkhd);
}

class ManyTexts {
 public:
  explicit ManyTexts(Engine& engine) : engine_(engine) {}

  /// Some texts of every kind; returns how many.
  long write() {
    prefix_.reset();
    if (below(2) == 0) prefix_.emplace(engine_.prefix(beginning()));
    Sequence trunk = prefix_ ? prefix_->begin() : engine_.new_sequence();
    trunk.generate(random_tokens(2, 96, random_()), options());
    if (below(4) == 0) trunk.rewind(static_cast<std::int32_t>(1 + below(trunk.tokens().size())));
    std::vector<Sequence> branches;
    std::vector<Request> requests;
    for (int branch = 0; branch < 3; ++branch) branches.push_back(trunk.fork());
    for (Sequence& branch : branches) {
      requests.emplace_back();
      requests.back().sequence = &branch;
      requests.back().options = options();
    }
    for (int text = 0; text < 4; ++text) {
      requests.push_back(request_of(beginning(), options()));
      requests.back().n = 1 + static_cast<std::int32_t>(below(2));
    }
    requests[3].callback = [](std::int32_t, const Piece&) { return false; };
    requests[4].callback = [](std::int32_t, const Piece&) -> bool {
      throw std::runtime_error("its own");
    };
    long texts = 1;
    for (const Request& request : requests) texts += request.n;
    for (const Outcome& outcome : engine_.generate(requests)) {
      for (const Generation& sample : outcome.samples) preempted += sample.statistics.preemptions;
    }
    return texts;
  }
  /// Until so many more have been written. Returns the bytes in use then that were not before.
  std::int64_t growth(long count, bool leaks) {
    const std::int64_t before = bytes_after_all();
    for (long texts = 0; texts < count;) {
      const long more = write();
      texts += more;
      for (long text = 0; leaks && text < more; ++text) {
        leaked_.push_back(std::make_unique<std::array<char, 256>>());
      }
    }
    return bytes_after_all() - before;
  }
  std::int64_t preempted = 0;

 private:
  std::size_t below(std::size_t end) { return random_() % end; }
  std::vector<TokenId> beginning() {
    std::vector<TokenId> tokens = random_tokens(1 + below(80), 96, below(3));
    const std::vector<TokenId> own = random_tokens(1 + below(5), 96, random_());
    tokens.insert(tokens.end(), own.begin(), own.end());
    return tokens;
  }
  GenerateOptions options() {
    GenerateOptions options = greedy(1 + static_cast<std::int32_t>(below(below(8) == 0 ? 80 : 10)));
    options.speculation = speculation_of(Rule::greedy, below(16));
    options.sampling.temperature = below(2) == 0 ? 0.0 : 0.8;
    options.logprobs = below(4) == 0;
    options.seed = random_();
    return options;
  }
  std::int64_t bytes_after_all() {
    prefix_.reset();
    engine_.drop_cache();
    return bytes_in_use();
  }

  Engine& engine_;
  std::mt19937 random_{7};
  std::optional<Prefix> prefix_;
  std::vector<std::unique_ptr<std::array<char, 256>>> leaked_;
};

TEST(FlatMemory, OverManyTexts) {
  if (sanitized) GTEST_SKIP() << "sanitizers have an allocator of their own";
  const TinyPair pair(endless());
  EngineOptions load = pair.options();
  load.kv_tokens = 256;
  load.max_tree_size = 16;
  Engine engine = Engine::load(load);
  ManyTexts texts(engine);
  const long count = texts_in_all();
  // Scratch memory grows to what the largest batch needs, which comes late.
  constexpr std::int64_t most = 512 << 10;
  texts.growth(count / 4, false);
  const std::int64_t grown = texts.growth(3 * count / 4, false);
  std::cout << count << " texts, " << texts.preempted << " preempted, "
            << engine.cache().evicted_tokens << " tokens evicted; the last three quarters left "
            << grown << " bytes\n";
  EXPECT_LT(grown, most);
  EXPECT_GT(texts.preempted, 0);
  EXPECT_GT(engine.cache().evicted_tokens, count);
  EXPECT_GT(texts.growth(3000, true), most) << "256 bytes that a text leaves";
  expect_nothing_leaked(engine);
}

}  // namespace
}  // namespace coppice::testing
