#pragma once

#include <sys/resource.h>

#include <cstdint>

#include "base/stopwatch.h"

namespace coppice {

/// Watches whether other programs take processors from this one while it lives.
class ProcessorWatch {
 public:
  /// `counts_waiting`: the watching thread computes all the time, so that time in which it does not
  /// run was taken from it; else, as while a GPU computes, it may be waiting.
  explicit ProcessorWatch(bool counts_waiting) : counts_waiting_(counts_waiting) {}

  /// Whether any thread of the process lost its processor before it was done with it, or the
  /// watching one ran for less than `least_share` of the time.
  bool disturbed(double least_share) const {
    if (switches() != switches_before_) return true;
    return counts_waiting_ &&
           thread_cpu_seconds() - cpu_before_ < least_share * (now_seconds() - began_);
  }

 private:
  /// Involuntary context switches of this process so far.
  static std::int64_t switches() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_nivcsw;
  }

  bool counts_waiting_;
  std::int64_t switches_before_ = switches();
  double began_ = now_seconds(), cpu_before_ = thread_cpu_seconds();
};

}  // namespace coppice
