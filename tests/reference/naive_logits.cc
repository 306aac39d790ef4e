#include "reference/naive_logits.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <limits>
#include <numeric>

namespace coppice::testing {

std::vector<double> naive_process(std::span<const float> logits, const SamplingParams& params,
                                  const std::vector<bool>& seen, bool* near_edge,
                                  const std::vector<std::int32_t>& fresh) {
  const std::size_t n = logits.size();
  if (near_edge != nullptr) *near_edge = false;
  const auto edge = [&](double a, double b) {
    if (near_edge != nullptr && a != b &&
        std::abs(a - b) < 1e-5 * std::max(std::abs(a), std::abs(b))) {
      *near_edge = true;
    }
  };
  std::vector<float> x(n);
  for (std::size_t i = 0; i < n; ++i) {
    x[i] = std::isnan(logits[i]) ? -std::numeric_limits<float>::infinity()
                                 : std::min(logits[i], FLT_MAX);
    if (!seen.empty() && seen[i]) {
      const auto penalty = static_cast<float>(params.repetition_penalty);
      x[i] = x[i] > 0.0f ? x[i] / penalty : x[i] * penalty;
    }
    if (!fresh.empty() && fresh[i] > 0) {
      const double off = params.frequency_penalty * fresh[i] + params.presence_penalty;
      x[i] = static_cast<float>(static_cast<double>(x[i]) - off);
    }
  }
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return x[a] > x[b]; });
  std::vector<double> probs(n, 0.0);
  if (params.temperature <= 0.0) {
    probs[order[0]] = 1.0;
    return probs;
  }
  const double max = static_cast<double>(x[order[0]]);
  for (std::size_t i = 0; i < n; ++i) {
    probs[i] = std::exp((static_cast<double>(x[i]) - max) / params.temperature);
  }
  if (params.top_k > 0 && static_cast<std::size_t>(params.top_k) < n) {
    for (std::size_t r = static_cast<std::size_t>(params.top_k); r < n; ++r) probs[order[r]] = 0.0;
  }
  double total = std::accumulate(probs.begin(), probs.end(), 0.0);
  if (params.top_p < 1.0) {
    double mass = 0.0;
    bool full = false;
    for (std::size_t r = 0; r < n; ++r) {
      // Whether equal weights in a row are cut apart does not hang on rounding alone.
      if (full) {
        probs[order[r]] = 0.0;
        continue;
      }
      mass += probs[order[r]];
      edge(mass, params.top_p * total);
      full = mass >= params.top_p * total;
    }
  }
  const double largest = probs[order[0]];
  for (double& prob : probs) {
    if (prob == 0.0) continue;
    edge(prob, std::min(params.min_p, 1.0) * largest);
    if (prob < std::min(params.min_p, 1.0) * largest) prob = 0.0;
  }
  total = std::accumulate(probs.begin(), probs.end(), 0.0);
  for (double& prob : probs) prob /= total;
  return probs;
}

}  // namespace coppice::testing
