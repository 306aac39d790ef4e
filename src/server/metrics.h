// Counts for GET /metrics, in Prometheus' text format.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "coppice.h"

namespace coppice::server {

class Histogram {
 public:
  /// Upper bounds of the buckets, ascending; one without a bound is added.
  explicit Histogram(std::vector<double> bounds)
      : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}
  void add(double value, std::uint64_t times = 1);
  std::string text(const std::string& name, const std::string& help) const;

 private:
  std::vector<double> bounds_;
  std::vector<std::uint64_t> counts_;
  double sum_ = 0.0;
};

/// From any thread.
class Metrics {
 public:
  void answered(const std::string& path, int status);
  void first_token(double seconds);
  void tokens(double seconds, std::uint64_t count);
  void ended(const Generation& text, double seconds);
  std::string text(const EngineStatistics& engine) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, int>, std::uint64_t> answers_;
  std::map<std::string, std::uint64_t> ends_;
  std::uint64_t prompt_ = 0, cached_ = 0, generated_ = 0;
  Histogram first_token_{{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0,
                          2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0}};
  Histogram between_tokens_{
      {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2}};
  Histogram requests_{{0.05, 0.1, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0,
                       60.0, 120.0, 240.0, 480.0}};
};

}  // namespace coppice::server
