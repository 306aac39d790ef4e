// Wall-clock seconds added to a named sum.
#pragma once

#include <chrono>

namespace coppice {

inline double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Adds the time between construction and destruction to `sum`.
class Stopwatch {
 public:
  explicit Stopwatch(double& sum) : sum_(sum), start_(now_seconds()) {}
  ~Stopwatch() { sum_ += now_seconds() - start_; }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  double& sum_;
  double start_;
};

}  // namespace coppice
