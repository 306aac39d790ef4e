#include "sizing/auto_size.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace coppice {
namespace {

using C = SizingConstants;

// Increments of the lower convex hull of `costs` from its second value on (Andrew's monotone
// chain): what the first node costs is sunk once a step speculates.
void hull_increments(std::span<const double> costs, std::vector<std::size_t>& hull,
                     std::vector<double>& increments) {
  hull.clear();
  for (std::size_t n = 1; n < costs.size(); ++n) {
    while (hull.size() >= 2) {
      const std::size_t a = hull[hull.size() - 2], b = hull.back();
      const double chord = costs[a] + (costs[n] - costs[a]) * static_cast<double>(b - a) /
                                          static_cast<double>(n - a);
      if (costs[b] < chord) break;
      hull.pop_back();
    }
    hull.push_back(n);
  }
  increments.assign(costs.size(), 0.0);
  for (std::size_t h = 1; h < hull.size(); ++h) {
    const double step =
        (costs[hull[h]] - costs[hull[h - 1]]) / static_cast<double>(hull[h] - hull[h - 1]);
    for (std::size_t n = hull[h - 1]; n < costs.size(); ++n) increments[n] = step;
  }
  if (increments.size() > 1) increments[0] = increments[1];
}

// By n, the least slope of a line from costs[n] to a later one: along the lower hull of what is
// behind, which is built from its end.
void least_increments(std::span<const double> costs, std::vector<std::size_t>& hull,
                      std::vector<double>& least) {
  hull.clear();
  least.assign(costs.size(), 0.0);
  const auto slope = [&](std::size_t a, std::size_t b) {
    return (costs[b] - costs[a]) / static_cast<double>(b - a);
  };
  for (std::size_t n = costs.size(); n-- > 0;) {
    while (hull.size() >= 2 && slope(n, hull.back()) >= slope(n, hull[hull.size() - 2])) {
      hull.pop_back();
    }
    if (!hull.empty()) least[n] = slope(n, hull.back());
    hull.push_back(n);
  }
  if (costs.size() > 1) least.back() = least[costs.size() - 2];
}

}  // namespace

AutoSize::AutoSize(const CostTable& costs, CostCorrection* correction, ChildDraw draw,
                   std::int32_t most)
    : costs_(costs),
      correction_(correction),
      most_(std::min(most, C::most_priced)),
      calibration_(draw),
      values_(&calibration_, false) {}

double AutoSize::plain_seconds(std::int32_t texts, std::int32_t prompt_rows,
                               std::int64_t kv_tokens) const {
  const std::int32_t rows = texts + prompt_rows;
  // Beside rows of others' prompts no text is alone.
  return corrected(plain_pass(rows), costs_.target.seconds(rows, texts, kv_tokens), rows);
}

// Of the rows of `texts` texts, of average length.
double AutoSize::draft_seconds(double rows, double texts) const {
  const auto whole = static_cast<std::int32_t>(std::lround(texts));
  return costs_.draft.seconds(rows, whole, std::int64_t{whole} * company_.length());
}

// Of all texts in the unit's time, if the step is what it usually is.
double AutoSize::tokens_per_unit() const {
  const Company& c = company_;
  StepWork work;
  work.texts = c.texts;
  work.nodes = static_cast<std::int32_t>(std::lround(c.nodes() + c.given_nodes()));
  work.drafting = c.adapting + c.given;
  work.prompt_rows = c.prompt_rows;
  work.kv_tokens = c.kv_tokens;
  double seconds = corrected(tree_pass(work.texts), costs_.target_seconds(work), work.rows()) +
                   corrected(Work::host, CostTable::host_seconds(work)) +
                   corrected(Work::first_draft, costs_.first_draft_seconds(work));
  const double turns = std::accumulate(c.drafts.begin(), c.drafts.end(), 0.0);
  const double pass = corrected(Work::draft, 1.0);
  for (std::size_t k = 1; k < c.drafts.size(); ++k) {
    const double happens = std::min(1.0, c.drafts[k]), texts = std::max(1.0, c.drafts[k]);
    seconds += happens * pass * draft_seconds(work.nodes * texts / turns, texts);
  }
  return c.tokens() / c.texts * plain_seconds(c.texts, c.prompt_rows, c.kv_tokens) / seconds;
}

// Prices move slowly, and there are many of them. What one text does, the others are taken to do in
// proportion: rows come in steps, and what no text would begin alone may pay for all.
void AutoSize::fix_prices(bool hope) {
  const Company& c = company_;
  const bool alone = c.texts == 1;
  const std::int32_t most =
      std::max(C::longest_chain, std::min(most_, C::priced_ahead * largest_tree_));
  const double plain = plain_seconds(c.texts, c.prompt_rows, c.kv_tokens) / c.texts;
  const double host = corrected(Work::host, 1.0) / plain;
  draft_factor_ = corrected(Work::draft, 1.0) / plain;
  const double own = usual_.known() ? usual_.nodes() : c.nodes_each();
  double moving = alone ? 1.0 : std::max(1, c.adapting);
  if (!alone && c.nodes() < moving * own) moving = std::max(1.0, c.nodes() / own);
  const double others = c.texts + c.prompt_rows + c.given_nodes() + c.nodes() - moving * own;
  verify_.resize(static_cast<std::size_t>(most) + 1);
  pass_.resize(verify_.size());
  for (std::int32_t n = 0; n <= most; ++n) {
    const auto rows =
        alone ? n + 1
              : std::max(c.texts, static_cast<std::int32_t>(std::lround(others + moving * n)));
    const double factor = hope ? correction_->hopeful_factor(tree_pass(c.texts), rows)
                               : corrected(tree_pass(c.texts), 1.0, rows);
    const auto i = static_cast<std::size_t>(n);
    verify_[i] = factor / plain * costs_.target.seconds(rows, c.texts, c.kv_tokens) / moving +
                 host * (C::step_overhead_seconds + C::node_seconds * n);
    pass_[i] = draft_factor_ * costs_.draft.seconds(std::max(1, n), c.length());
  }
  hull_increments(verify_, corners_, hull_);
  least_increments(verify_, corners_, least_);
  if (!alone && c.known()) rate_ = tokens_per_unit();
}

double AutoSize::node_cost(std::int32_t size) const {
  return worth_ * hull_[std::min(static_cast<std::size_t>(size), hull_.size() - 1)];
}

double AutoSize::least_node_cost(std::int32_t size) const {
  return worth_ * least_[std::min(static_cast<std::size_t>(size), least_.size() - 1)];
}

double AutoSize::pass_cost(std::int32_t rows, std::int32_t pass) const {
  const auto last = [](const auto& all, std::int32_t i) {
    return std::min(static_cast<std::size_t>(i), all.size() - 1);
  };
  const double texts = together_[last(together_, pass)];
  if (texts <= 1.0) return worth_ * pass_[last(pass_, rows)];
  return worth_ * draft_factor_ * draft_seconds(rows * texts, texts) / texts;
}

double AutoSize::verify_cost(std::int32_t size) const {
  const auto n = static_cast<std::size_t>(size);
  if (n < verify_.size()) return worth_ * verify_[n];
  return worth_ * (verify_.back() + static_cast<double>(n + 1 - verify_.size()) * hull_.back());
}

void AutoSize::begin_text(double fit) {
  if (fit < C::useless_fit) {
    surplus_ = -C::tolerated_loss;
    wait_ = C::useless_wait;
    next_wait_ = C::longest_wait;
    has_waited_ = true;
  } else {
    surplus_ = C::first_credit;
    wait_ = 0;
  }
}

void AutoSize::join(Company& company) const {
  if (is_due(company)) {
    company.join_adapting(usual_, won_ - won_before_, tokens_of_a_chain());
  } else {
    company.join_waiting();
  }
}

// Among others a text comes back at steps that all know.
bool AutoSize::is_due(const Company& company) const {
  return wait_ == 0 && (!has_waited_ || company.texts == 1 || company.step % C::retry_every == 0);
}

void AutoSize::give_up() {
  barren_ = 0;
  steps_to_prices_ = 0;
  wait_ = company_.texts == 1 ? next_wait_ : std::max(next_wait_, C::retry_every);
  next_wait_ = std::min(2 * wait_, C::longest_wait);
  has_waited_ = true;
}

// What was learned among fewer texts, or more, says little of what pays now.
void AutoSize::meet() {
  const std::int32_t texts = company_.texts;
  if (2 * texts > 3 * met_) {
    surplus_ = std::min(surplus_, C::first_credit);
    won_ = std::min(won_, 0.0);
    won_before_ = 0.0;
  } else if (3 * texts < 2 * met_) {
    wait_ = 0;
    next_wait_ = C::first_wait;
  } else {
    return;
  }
  steps_to_prices_ = 0;
  met_ = texts;
}

// Whether to, among others.
bool AutoSize::goes_along() {
  // A newcomer among texts that have given up is one of them.
  if (!usual_.known() && !has_waited_ && company_.waiting > company_.adapting) {
    surplus_ = -C::tolerated_loss;
    give_up();
  }
  if (!is_due(company_)) return false;
  const double texts = std::sqrt(std::max(1, company_.adapting));
  if (has_waited_) {
    won_before_ = won_ + C::tolerated_together / texts;  // one step decides
  } else if (won_ < won_before_ && company_.won < -C::tolerated_together * texts) {
    give_up();
    return false;
  }
  return true;
}

// What a token of this text is worth: the less, the more a step brings it. A batch is a mix in
// which slow texts stay longest: if texts of r_i tokens a step take S seconds together, it ends as
// many texts a second as 1 / (S times the mean of 1 / r_i), whose logarithm rises by dr_i / r_i. By
// trees alike: sizes that follow what they bring would swing.
double AutoSize::haste() const {
  if (company_.adapting < C::many_texts) return 1.0;
  return tokens_of_a_chain() / company_.tokens_of_a_chain();
}

double AutoSize::tokens_of_a_chain() const {
  double tokens = 1.0, reach = 1.0;
  for (std::int32_t depth = 1; depth <= C::usual_chain; ++depth) {
    tokens += reach *= calibration_.position(0, depth);
  }
  return tokens;
}

bool AutoSize::begin_step(const Company& company) {
  company_ = company;
  const bool alone = company_.texts == 1;
  meet();
  const bool speculate = alone ? wait_ == 0 : goes_along();
  if (speculate) has_waited_ = false;
  for (std::size_t k = 0; k < together_.size(); ++k) {
    const double others = alone ? 0.0 : std::max(0.0, company_.drafts[k] - usual_.drafts(k));
    together_[k] = std::max(1.0 + others, static_cast<double>(company_.sharing[k]));
  }
  // Time is worth what it brings at the present rate: at the best rate, growth that just pays at
  // this price leaves the rate unchanged (Dinkelbach, 1967).
  if (alone || !company_.known()) rate_ = spent_ > 0.0 ? tokens_ / spent_ : 1.0;
  const bool hope = speculate && correction_ != nullptr &&
                    (alone ? ++steps_ : company_.step) % C::hope_every == 0;
  if (hope || (speculate ? --steps_to_prices_ < 0 : verify_.empty())) {
    fix_prices(hope);
    steps_to_prices_ = hope || ++priced_ < C::first_prices ? 0 : C::price_every - 1;
  }
  if (speculate && !alone && correction_ != nullptr &&
      correction_->spread(Work::joint, company_.texts) > C::unseen) {
    steps_to_prices_ = 0;
    return false;
  }
  const double rate = std::exchange(rate_, std::max(1.0, rate_));
  worth_ = rate_ * haste();
  // Nor is a plain step that may be cheaper than it is taken for ever seen else.
  if (hope && spent_ > 0.0) {
    const Work work = plain_pass(company_.texts);
    return rate * correction_->hopeful_factor(work, company_.texts) /
               correction_->factor(work, company_.texts) >=
           1.0;
  }
  return speculate;
}

void AutoSize::record_plain() {
  if (wait_ > 0) --wait_;
}

// In the unit above. What was hoped for is no part of it. A text pays for its rows, and for its
// turns in draft passes, by its part of them: all texts' costs add up to the step's.
double AutoSize::step_cost(std::int32_t size, std::int64_t passes, const StepWork& work) const {
  const double texts = work.texts;
  const double of_rows =
      work.nodes > 0 ? texts * size / work.nodes : texts / std::max(1, work.drafting);
  double seconds =
      of_rows * (corrected(tree_pass(work.texts), costs_.target_seconds(work), work.rows()) +
                 corrected(Work::host, CostTable::host_seconds(work)));
  if (passes > 0) {
    const double of_passes = texts * static_cast<double>(passes) / static_cast<double>(work.turns);
    seconds += of_passes * (corrected(Work::first_draft, costs_.first_draft_seconds(work)) +
                            static_cast<double>(work.passes - 1) *
                                corrected(Work::draft, costs_.later_draft_seconds(work)));
  }
  return seconds / plain_seconds(work.texts, work.prompt_rows, work.kv_tokens) + (1.0 - of_rows);
}

// What each draft pass would have brought, in the draft's seconds, less what its rows cost in the
// target's pass, as far as it is known from the pass before it: from the first children of nodes,
// and of their first children beyond the tree; and from what passes behind it bring at their price.
UsualStep::ByPass AutoSize::worth_of_passes(const TokenTree& tree) {
  UsualStep::ByPass worth{}, rows{};
  const double row = node_cost(tree.size());
  const std::int32_t height = tree.height();
  values_.reset();
  for (std::int32_t node = 1; node < tree.nodes(); ++node) {
    values_.added(tree, node);
    auto pass = static_cast<std::size_t>(tree.depth[static_cast<std::size_t>(node)]);
    double value = values_.expected_first_child(tree, node);
    while (value > row && pass < worth.size()) {
      worth[pass] += value - row;
      rows[pass] += 1.0;
      if (static_cast<std::int32_t>(pass) < height) break;  // the tree has what is below
      value *= calibration_.position(0, static_cast<std::int32_t>(++pass) + 1);
    }
  }
  for (std::size_t k = worth.size() - 1; k > 0; --k) {
    if (rows[k] == 0.0) continue;
    const auto pass = static_cast<std::int32_t>(k);
    const auto own = static_cast<std::int32_t>(rows[k]);
    worth[k] -= pass_cost(own, pass) - pass_cost(1, pass);
    if (k + 1 < worth.size() && rows[k + 1] > 0.0) {
      worth[k] += std::max(0.0, worth[k + 1] * worth_ * draft_factor_ - pass_cost(1, pass + 1));
    }
    worth[k] /= worth_ * draft_factor_;
  }
  return worth;
}

double AutoSize::record(const TokenTree& tree, std::span<const std::int32_t> path,
                        std::int64_t passes, const StepWork& work) {
  const double tokens = static_cast<double>(path.size()) + 1.0;
  if (work.texts >= C::many_texts) {
    usual_.record_demand(worth_of_passes(tree), company_.turns);
  }
  usual_.record(tree.size(), tokens, passes);
  calibration_.record(tree, path);
  const double cost = step_cost(tree.size(), passes, work);
  tokens_ = C::discount * tokens_ + tokens;
  spent_ = C::discount * spent_ + cost;
  surplus_ = C::discount * surplus_ + tokens - cost;
  won_ = std::min(won_ + tokens - cost, C::most_won);
  largest_tree_ = std::max(largest_tree_, tree.size());
  // Draft passes after which nothing seemed worth a row: prices are against it for now.
  barren_ = tree.size() == 0 ? barren_ + 1 : 0;
  // Among others that may be their doing: who has won goes on as long as it pays for its part.
  const bool barren = barren_ >= C::most_barren && (work.texts == 1 || surplus_ < C::first_credit);
  const bool bleeds = work.texts > 1 && won_ < -C::tolerated_loss - C::first_credit;
  if (surplus_ > -C::tolerated_loss && !barren && !bleeds) {
    if (tree.size() > 0) next_wait_ = C::first_wait;
  } else {
    give_up();
  }
  return cost;
}

double AutoSize::threshold() const { return std::clamp(worth_ * hull_[8], 1e-3, 0.5); }

}  // namespace coppice
