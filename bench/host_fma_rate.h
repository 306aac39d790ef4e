// What this machine's cores multiply and add in f32, the limit of products of many rows.
#pragma once

namespace coppice::bench {

/// Operations per second, two for each fused multiply-add, of `threads` threads at once: the best
/// of `repetitions`. With the widest vectors that may be used (COPPICE_CPU_ISA).
double host_fma_rate(int threads, int repetitions = 5);

}  // namespace coppice::bench
