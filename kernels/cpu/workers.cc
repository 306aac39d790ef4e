#include "kernels/cpu/workers.h"

#include <omp.h>

#include "base/error.h"

#ifdef __linux__
#include <sched.h>
#endif
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace coppice::cpu {
namespace {

// Bits of the gate: helpers inside, most helpers inside, open.
constexpr std::uint32_t inside_mask = 0x7fff;
constexpr std::uint32_t limit_shift = 15;
constexpr std::uint32_t open_bit = 1u << 31;

/// Turns of waiting before a helper sleeps: some 100 microseconds, longer than the pauses
/// between the operations of a pass.
constexpr int spins_before_sleep = 8000;
/// Turns after which the caller, waiting for a helper's last item, offers its processor.
constexpr int spins_before_yield = 200;

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

}  // namespace

int usable_threads() {
#ifdef __linux__
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
#endif
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

Workers::Workers(int threads) {
  // Spinning with more threads than processors takes time from those that work.
  spins_ = threads <= usable_threads() ? spins_before_sleep : 0;
  try {
    for (int worker = 1; worker < threads; ++worker) {
      helpers_.emplace_back([this, worker] { serve(worker); });
    }
  } catch (const std::exception& error) {
    const std::size_t started = helpers_.size() + 1;
    stop();
    throw_failure(cat("threads: ", threads, " are wanted, the system lets this process start ",
                      started, " (", error.what(), "); ask for fewer"));
  }
}

Workers::~Workers() { stop(); }

void Workers::stop() {
  stop_.store(true);
  jobs_.fetch_add(1);
  jobs_.notify_all();
  for (std::thread& helper : helpers_) helper.join();
  helpers_.clear();
}

void Workers::start(std::int64_t items, int team, Call call, const void* context) {
  call_ = call;
  context_ = context;
  items_ = items;
  claimed_.store(0, std::memory_order_relaxed);
  front_ = 0;
  back_.store(0, std::memory_order_relaxed);
  const auto limit = static_cast<std::uint32_t>(std::min(team, threads()) - 1);
  gate_.store(open_bit | limit << limit_shift, std::memory_order_release);
  jobs_.fetch_add(1, std::memory_order_release);
  jobs_.notify_all();
  work(0);
  gate_.fetch_and(inside_mask, std::memory_order_acq_rel);
  for (int turn = 0; gate_.load(std::memory_order_acquire) != 0; ++turn) {
    if (turn < spins_before_yield) {
      pause();
    } else {
      std::this_thread::yield();
    }
  }
}

void Workers::work(int worker) {
  for (;;) {
    if (claimed_.fetch_add(1, std::memory_order_relaxed) >= items_) return;
    // The caller takes items from the front, helpers from the back: from pass to pass a core
    // then reads much the same weights, which its own caches hold in part.
    const std::int64_t item =
        worker == 0 ? front_++ : items_ - 1 - back_.fetch_add(1, std::memory_order_relaxed);
    call_(context_, item, worker);
  }
}

void Workers::serve(int worker) {
  omp_set_num_threads(1);  // oneDNN runs inside items, on one thread each
  std::uint32_t seen = 0;
  for (;;) {
    for (int turn = 0; turn < spins_ && jobs_.load(std::memory_order_acquire) == seen; ++turn) {
      pause();
    }
    jobs_.wait(seen, std::memory_order_acquire);
    seen = jobs_.load(std::memory_order_acquire);
    if (stop_.load()) return;
    std::uint32_t gate = gate_.load(std::memory_order_relaxed);
    while ((gate & open_bit) != 0 && (gate & inside_mask) < ((gate & ~open_bit) >> limit_shift)) {
      if (gate_.compare_exchange_weak(gate, gate + 1, std::memory_order_acq_rel,
                                      std::memory_order_relaxed)) {
        work(worker);
        gate_.fetch_sub(1, std::memory_order_release);
        break;
      }
    }
  }
}

}  // namespace coppice::cpu
