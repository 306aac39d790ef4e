#include "kernels/cpu/workers.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>

namespace coppice::cpu {
namespace {

TEST(Workers, EveryItemOnce) {
  for (const int threads : {1, 2, 3, 8}) {
    Workers workers(threads);
    EXPECT_EQ(workers.threads(), threads);
    for (int round = 0; round < 2000; ++round) {
      const std::int64_t items = round % 19;
      std::vector<std::atomic<int>> count(static_cast<std::size_t>(items));
      workers.run(items, threads, [&](std::int64_t item, int) {
        count[static_cast<std::size_t>(item)].fetch_add(1);
      });
      for (const auto& c : count) ASSERT_EQ(c.load(), 1);
    }
  }
}

TEST(Workers, WorkerNumbersAreDifferentAtTheSameTimeAndTeamsAreLimited) {
  Workers workers(6);
  for (const int team : {2, 4, 6}) {
    for (int round = 0; round < 200; ++round) {
      std::vector<std::atomic<int>> inside(6);
      std::atomic<int> together{0}, most{0}, clashes{0};
      workers.run(40, team, [&](std::int64_t, int worker) {
        const auto w = static_cast<std::size_t>(worker);
        if (inside[w].fetch_add(1) != 0) clashes.fetch_add(1);
        const int now = together.fetch_add(1) + 1;
        for (int seen = most.load(); now > seen && !most.compare_exchange_weak(seen, now);) {
        }
        std::this_thread::yield();
        together.fetch_sub(1);
        inside[w].fetch_sub(1);
      });
      ASSERT_EQ(clashes.load(), 0);
      ASSERT_LE(most.load(), team);
    }
  }
}

TEST(Workers, HelpersThatSleptComeBack) {
  Workers workers(2);
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    // The caller's item waits for the helper's: both must be at work at once.
    std::atomic<int> arrived{0};
    workers.run(2, 2, [&](std::int64_t, int) {
      arrived.fetch_add(1);
      while (arrived.load() < 2) std::this_thread::yield();
    });
    EXPECT_EQ(arrived.load(), 2);
  }
}

TEST(Workers, SharesCoverEverything) {
  std::int64_t at = 0;
  for (int i = 0; i < 7; ++i) {
    const Share share = share_of(23, i, 7);
    EXPECT_EQ(share.begin, at);
    at = share.end;
  }
  EXPECT_EQ(at, 23);
}

}  // namespace
}  // namespace coppice::cpu
