#include "bench/host_fma_rate.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/stopwatch.h"
#include "kernels/cpu/workers.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/host_fma_rate.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace coppice::bench::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Operations done. Ten sums: more than latency times units of any core, and registers for all.
double multiply_and_add(std::int64_t steps, float* out) {
  constexpr int sums = 10;
  const hn::ScalableTag<float> d;
  const auto factor = hn::Set(d, 0.999f), addend = hn::Set(d, 0.001f);
  // Each begins elsewhere: a compiler makes one sum of equal ones.
  auto s0 = hn::Iota(d, 0.0f), s1 = hn::Iota(d, 1.0f), s2 = hn::Iota(d, 2.0f);
  auto s3 = hn::Iota(d, 3.0f), s4 = hn::Iota(d, 4.0f), s5 = hn::Iota(d, 5.0f);
  auto s6 = hn::Iota(d, 6.0f), s7 = hn::Iota(d, 7.0f), s8 = hn::Iota(d, 8.0f);
  auto s9 = hn::Iota(d, 9.0f);
  for (std::int64_t i = 0; i < steps; ++i) {
    s0 = hn::MulAdd(s0, factor, addend);
    s1 = hn::MulAdd(s1, factor, addend);
    s2 = hn::MulAdd(s2, factor, addend);
    s3 = hn::MulAdd(s3, factor, addend);
    s4 = hn::MulAdd(s4, factor, addend);
    s5 = hn::MulAdd(s5, factor, addend);
    s6 = hn::MulAdd(s6, factor, addend);
    s7 = hn::MulAdd(s7, factor, addend);
    s8 = hn::MulAdd(s8, factor, addend);
    s9 = hn::MulAdd(s9, factor, addend);
  }
  const auto total = hn::Add(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)),
                             hn::Add(hn::Add(s4, s5), hn::Add(hn::Add(s6, s7), hn::Add(s8, s9))));
  *out = hn::GetLane(hn::SumOfLanes(d, total));
  return 2.0 * sums * static_cast<double>(steps) * static_cast<double>(hn::Lanes(d));
}

}  // namespace coppice::bench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coppice::bench {

HWY_EXPORT(multiply_and_add);

double host_fma_rate(int threads, int repetitions) {
  constexpr std::int64_t steps = 1 << 20;
  constexpr int parts = 4;  // of each thread, so that one that is late loses less
  const std::int64_t items = std::int64_t{threads} * parts;
  cpu::Workers workers(threads);
  std::vector<float> results(static_cast<std::size_t>(items));
  std::vector<double> operations(results.size());
  double best = 0.0;
  for (int i = 0; i < repetitions; ++i) {
    const double start = now_seconds();
    workers.run(items, threads, [&](std::int64_t item, int) {
      const auto at = static_cast<std::size_t>(item);
      operations[at] = HWY_DYNAMIC_DISPATCH(multiply_and_add)(steps, &results[at]);
    });
    const double seconds = now_seconds() - start;
    double all = 0.0;
    for (const double done : operations) all += done;
    for (const float result : results) {
      if (!(result > 0.0f)) return 0.0;  // never: the sums are used
    }
    best = std::max(best, all / seconds);
  }
  return best;
}

}  // namespace coppice::bench
#endif
