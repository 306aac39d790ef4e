#include "sizing/cost_correction.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "sizing/constants.h"

namespace coppice {
namespace {

using C = SizingConstants;

std::size_t index(Work work) { return static_cast<std::size_t>(work); }

}  // namespace

CostCorrection::CostCorrection() {
  for (Vector& row : prior_) row.fill(0.0);
  const auto square = [](double x) { return x * x; };
  prior_[0][0] = square(C::machine_spread);
  memory_[0] = std::exp(-1.0 / C::machine_memory);
  for (std::size_t k = 1; k < size; ++k) {
    memory_[k] = std::exp(-1.0 / C::work_memory);
    if (k <= kinds) {
      prior_[k][k] = square(C::work_spread);
      continue;
    }
    for (std::size_t other = kinds + 1; other < size; ++other) {
      const auto apart = static_cast<double>(k > other ? k - other : other - k);
      prior_[k][other] = square(C::rows_spread) * std::pow(C::rows_alike, apart);
    }
  }
  covariance_ = prior_;
  covariance_[0][0] = square(C::first_machine_spread);
  noise_.fill(square(C::first_noise));
}

void CostCorrection::doubt_machine() { covariance_[0][0] = prior_[0][0]; }

CostCorrection::Terms CostCorrection::terms(Work work, std::int32_t rows) {
  Terms terms{{0, 1 + index(work), 0, 0}, {1.0, 1.0, 0.0, 0.0}, 2};
  if (work != Work::verify && work != Work::joint) return terms;
  const auto upper = std::lower_bound(knots.begin(), knots.end(), rows);
  const auto above =
      std::min<std::size_t>(static_cast<std::size_t>(upper - knots.begin()), knots.size() - 1);
  if (upper == knots.end() || knots[above] == rows || above == 0) {
    terms.place[2] = 1 + kinds + above;
    terms.weight[2] = 1.0;
    terms.count = 3;
    return terms;
  }
  const double share = static_cast<double>(rows - knots[above - 1]) /
                       static_cast<double>(knots[above] - knots[above - 1]);
  return {
      {0, 1 + index(work), kinds + above, 1 + kinds + above}, {1.0, 1.0, 1.0 - share, share}, 4};
}

double CostCorrection::sum(const Terms& terms) const {
  double sum = 0.0;
  for (std::size_t i = 0; i < terms.count; ++i) sum += terms.weight[i] * mean_[terms.place[i]];
  return sum;
}

// The mean of a log-normal: interruptions are rare and long, and count by their mean.
double CostCorrection::factor(Work work, std::int32_t rows) const {
  return std::exp(sum(terms(work, rows)) + 0.5 * noise_[index(work)]);
}

double CostCorrection::spread(Work work, std::int32_t rows) const {
  const Terms all = terms(work, rows);
  double variance = 0.0;
  for (std::size_t i = 0; i < all.count; ++i) {
    for (std::size_t j = 0; j < all.count; ++j) {
      variance += all.weight[i] * all.weight[j] * covariance_[all.place[i]][all.place[j]];
    }
  }
  return std::sqrt(std::max(0.0, variance));
}

double CostCorrection::optimistic_factor(Work work, std::int32_t rows) const {
  return factor(work, rows) * std::exp(-C::optimism * spread(work, rows));
}

void CostCorrection::observe(Work work, std::int32_t rows, double seconds, double by_table) {
  if (!(seconds > 0.0 && by_table > 0.0)) return;
  const Terms seen = terms(work, rows);
  const double limit = std::log(C::most_clock_step);
  const double off = std::clamp(std::log(seconds / by_table) - sum(seen), -limit, limit);
  Vector gain{};
  double variance = 0.0;
  for (std::size_t i = 0; i < seen.count; ++i) {
    for (std::size_t k = 0; k < size; ++k) {
      gain[k] += seen.weight[i] * covariance_[k][seen.place[i]];
    }
  }
  for (std::size_t i = 0; i < seen.count; ++i) variance += seen.weight[i] * gain[seen.place[i]];
  double& noise = noise_[index(work)];
  const double total = variance + noise;
  // One interrupted pass says little about the next; several in a row do, by their noise.
  const double believed = C::surprise * std::sqrt(total);
  const double moved = std::clamp(off, -believed, believed);
  for (std::size_t k = 0; k < size; ++k) {
    mean_[k] += gain[k] / total * moved;
    for (std::size_t j = 0; j < size; ++j) covariance_[k][j] -= gain[k] * gain[j] / total;
  }
  // What of the surprise the terms do not explain, the less so the less sure of them one was.
  noise = std::max(C::least_noise * C::least_noise,
                   noise + C::noise_weight * noise / total * (off * off - total));
}

void CostCorrection::observe_step(const CostTable& costs, const StepWork& work,
                                  const StepSeconds& seconds, bool disturbed) {
  disturbed_ = disturbed ? disturbed_ + 1 : 0;
  if (disturbed_ > 0 && disturbed_ <= C::most_disturbed) return;
  if (work.prompt_rows > 0) return;
  const bool plain = work.passes == 0 && work.nodes == 0;
  observe(plain ? plain_pass(work.texts) : tree_pass(work.texts), work.rows(), seconds.verify,
          costs.target_seconds(work));
  if (work.passes > 0) {
    observe(Work::first_draft, 1, seconds.first_draft, costs.first_draft_seconds(work));
    observe(Work::draft, 1, seconds.draft - seconds.first_draft,
            static_cast<double>(work.passes - 1) * costs.later_draft_seconds(work));
    observe(Work::host, 1, seconds.drawing + seconds.construction + seconds.judging,
            CostTable::host_seconds(work));
  }
  end_step();
}

void CostCorrection::end_step() {
  for (std::size_t k = 0; k < size; ++k) {
    for (std::size_t j = 0; j < size; ++j) {
      const double left = memory_[k] * memory_[j];
      covariance_[k][j] = left * covariance_[k][j] + (1.0 - left) * prior_[k][j];
    }
  }
}

}  // namespace coppice
