#include "sizing/cost_measurement.h"

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <stop_token>
#include <vector>

#include "base/error.h"
#include "base/processor_watch.h"
#include "base/stopwatch.h"
#include "models/kv/kv_slots.h"
#include "sizing/constants.h"
#include "sizing/probe_rows.h"
#include "sizing/probe_sampling.h"

namespace coppice {
namespace {

using C = SizingConstants;

// Rows and prefix that passes can be measured with in so many slots.
struct Extent {
  std::int32_t context, rows, far;
  Extent(const Model& model, std::int32_t slots, std::int32_t most_rows)
      : context(std::min(model.max_positions(), slots)),
        rows(std::min(
            {most_rows, model.options().max_rows, model.options().max_logit_rows, context / 2})),
        far(std::max(2, std::min(context - rows, C::long_prefix))) {}
};

// Whether texts hold what would be needed.
bool is_cut(const LoadedModel& loaded, std::int32_t most_rows) {
  const Extent now(*loaded.model, loaded.pool->free_slots(), most_rows);
  const Extent empty(*loaded.model, loaded.pool->layout().slots(), most_rows);
  return now.rows < empty.rows || now.far < empty.far;
}

// Thrown between two passes.
struct Stopped {};

// Passes of one model over slots taken for the purpose.
class ProbePasses {
 public:
  /// `sampling` may be null.
  ProbePasses(Model& model, KvPool& pool, std::unique_ptr<ProbeSampling> sampling,
              std::int32_t most_rows, const std::stop_token& stop)
      : model_(model),
        pool_(pool),
        sampling_(std::move(sampling)),
        stop_(stop),
        slots_(&pool),
        rows_(model.config()) {
    const Extent extent(model, pool.free_slots(), most_rows);
    if (extent.context < C::least_context) {
      throw_failure("costs: too few free KV slots to measure; raise kv_tokens (--kv-tokens)");
    }
    most_rows_ = extent.rows;
    far_ = extent.far;
    if (!slots_.take(far_ + most_rows_)) {
      throw_failure("costs: too few free KV slots to measure; raise kv_tokens (--kv-tokens)");
    }
  }

  std::int32_t most_rows() const { return most_rows_; }
  bool is_split() const { return model_.ranks() > 1; }
  bool is_streamed() const { return model_.streamed_bytes() > 0; }
  std::int32_t near() const { return 1; }
  std::int32_t far() const { return far_; }

  double seconds(std::int32_t rows, std::int32_t prefix) { return pass(rows, prefix, rows); }

  /// Runs a draft's usual passes until a device that records passes has recorded them: those that
  /// begin a step's drafting, a few tokens of which the last has logits, and those of few nodes. A
  /// first request would else wait for as many recordings as it has passes.
  void warm_up_as_draft() {
    for (std::int32_t rows = 1; rows <= std::min(16, most_rows_); rows *= 2) {
      for (int time = 0; time < 2; ++time) {
        pass(rows, 1, 1);
        if (rows > 1) pass(rows, 1, rows);
      }
    }
  }

  /// Runs passes of all the row counts that a device runs trees at, until they are recorded. Ranks
  /// that meet a row count wait for each other at every sum, up to 30 ms on two GPUs.
  void warm_up_as_target() {
    const std::int32_t most = std::min(C::most_warmed_rows, most_rows_);
    for (std::int32_t rows = 1; rows <= most; ++rows) {
      rows = std::min(model_.device().padded_rows(rows), most);
      for (int time = 0; time < 2; ++time) {
        pass(rows, near(), rows);
        // A kernel of its own attends to many tokens.
        if (rows <= C::most_warmed_far_rows) pass(rows, far(), rows);
      }
    }
  }

 private:
  double pass(std::int32_t rows, std::int32_t prefix, std::int32_t logit_rows) {
    if (stop_.stop_requested()) throw Stopped();
    const std::span<const KvSlot> slots = slots_.all();
    rows_.clear();
    rows_.add(slots.first(static_cast<std::size_t>(prefix)),
              slots.subspan(static_cast<std::size_t>(prefix), static_cast<std::size_t>(rows)),
              logit_rows);
    const ForwardBatch batch = rows_.batch();
    const double start = now_seconds();
    PassEpilogue* const epilogue = sampling_ == nullptr ? nullptr : sampling_->stage(logit_rows);
    model_.forward(batch, pool_, epilogue);
    if (sampling_ != nullptr) sampling_->collect();
    model_.device().synchronize();
    return now_seconds() - start;
  }

  Model& model_;
  KvPool& pool_;
  std::unique_ptr<ProbeSampling> sampling_;
  const std::stop_token& stop_;
  std::int32_t most_rows_ = 0, far_ = 0;
  KvSlots slots_;
  ProbeRows rows_;
};

// In the order of what is most worth knowing: small trees, which most are, then the sides of the
// matrix products' larger steps (linear.h of both devices), so that a step of the costs stays one.
// Passes of a streamed model take as long as their copies, so few are timed: the most rows second.
std::vector<std::int32_t> timed_rows(const MeasuredRows& rows_to_time, const ProbePasses& model) {
  const std::int32_t most = model.most_rows();
  std::vector<std::int32_t> all = {1,  2,  3,  4,  5, 6,  7,   8,   16, 17, 12, 64, 32, 33,
                                   65, 24, 10, 48, 9, 14, 128, 129, 80, 81, 72, 73, 96};
  for (std::int32_t rows = 192; rows <= most; rows += rows / 2) all.push_back(rows);
  // What several texts' trees fill.
  const bool listed = std::find(all.begin(), all.end(), most) != all.end();
  if (most > rows_to_time.tree && !listed) all.push_back(most);
  std::erase_if(all, [&](std::int32_t rows) { return rows > most; });
  if (model.is_streamed() && most > 1) {
    std::erase(all, most);
    all.insert(all.begin() + 1, most);
  }
  return all;
}

// Attention's part, which alone grows with the prefix, is about linear in the rows: the long prefix
// is timed at some of them.
bool timed_far(std::int32_t rows, const MeasuredRows& measured) {
  if (rows > std::max(measured.tree, 128)) return false;
  return (rows & (rows - 1)) == 0 || rows > 96;
}

// What comes right before a pass that is timed.
enum class Before {
  passes_of_the_other,  ///< whose weights push this model's out of the caches
  its_own_like,         ///< once
  plain_decoding,       ///< its own like, until the caches have settled on what they keep
};

// Each noise that a shared machine makes is short and only adds: a pass is timed several times,
// apart from one another, and the least time counts.
class LeastSeconds {
 public:
  LeastSeconds(ProbePasses& model, std::int32_t rows, std::int32_t prefix, ProbePasses& other,
               Before before, int others = 0)
      : model_(&model),
        other_(&other),
        rows_(rows),
        prefix_(prefix),
        others_(others),
        before_(before) {}

  void time() {
    if (least_ == unknown) model_->seconds(rows_, prefix_);  // prepares code
    for (int i = 0; i < others_; ++i) other_->seconds(1, std::min(prefix_, other_->far()));
    if (before_ == Before::its_own_like) model_->seconds(rows_, prefix_);
    const double settled = now_seconds() + C::settling_seconds;
    do {
      least_ = std::min(least_, model_->seconds(rows_, prefix_));
    } while (before_ == Before::plain_decoding && now_seconds() < settled);
  }
  double seconds() const { return least_; }

 private:
  static constexpr double unknown = std::numeric_limits<double>::infinity();
  ProbePasses* model_;
  ProbePasses* other_;
  std::int32_t rows_, prefix_;
  int others_;
  Before before_;
  double least_ = unknown;
};

// One row's place in the caches differs between plain decoding and a step: the plain row is what
// speculation is held against.
LeastSeconds target_pass(ProbePasses& target, std::int32_t rows, std::int32_t prefix,
                         ProbePasses& draft) {
  if (rows == 1) return {target, rows, prefix, draft, Before::plain_decoding};
  return {target, rows, prefix, draft, Before::passes_of_the_other, C::draft_passes_before};
}

LeastSeconds draft_pass(ProbePasses& draft, std::int32_t rows, std::int32_t prefix,
                        ProbePasses& target) {
  return {draft, rows, prefix, target, Before::its_own_like};
}

LeastSeconds first_draft_pass(ProbePasses& draft, std::int32_t rows, std::int32_t prefix,
                              ProbePasses& target) {
  return {draft, rows, prefix, target, Before::passes_of_the_other, 1};
}

struct TimedRows {
  std::int32_t rows;
  LeastSeconds near;
  std::optional<LeastSeconds> far;
  void time() {
    near.time();
    if (far) far->time();
  }
  double growth() const { return std::max(0.0, far->seconds() - near.seconds()); }
};

// Round for round over all rows: what disturbs one round, for however long, leaves the others.
class Rounds {
 public:
  void add(const TimedRows& timed) {
    all_.push_back(timed);
    all_.back().time();
  }
  std::size_t size() const { return all_.size(); }
  /// One more round; returns the part of all seconds that it took off.
  double repeat() {
    const double before = total();
    for (TimedRows& timed : all_) timed.time();
    return 1.0 - total() / before;
  }
  std::vector<PassCosts::Point> points() {
    std::sort(all_.begin(), all_.end(),
              [](const auto& a, const auto& b) { return a.rows < b.rows; });
    std::vector<PassCosts::Point> points;
    for (std::size_t i = 0; i < all_.size(); ++i) {
      const double near = all_[i].near.seconds();
      points.push_back({all_[i].rows, near, near + growth(i)});
    }
    return points;
  }

 private:
  // Estimates the growth of the i-th, from those on both sides whose long prefix was timed; in
  // proportion to the rows beyond the last.
  double growth(std::size_t i) const {
    std::size_t below = i, above = i;
    while (!all_[below].far) --below;  // the first is one row, which was
    while (above < all_.size() && !all_[above].far) ++above;
    const double least = all_[below].growth();
    if (above == all_.size()) return least * all_[i].rows / all_[below].rows;
    if (above == below) return least;
    return least + (all_[above].growth() - least) * (all_[i].rows - all_[below].rows) /
                       (all_[above].rows - all_[below].rows);
  }
  // Each row's share counts alike.
  double total() const {
    return std::accumulate(all_.begin(), all_.end(), 0.0, [](double sum, const TimedRows& t) {
      return sum + (t.near.seconds() + (t.far ? t.far->seconds() : 0.0)) / t.rows;
    });
  }
  std::vector<TimedRows> all_;
};

template <typename Pass>
void first_round(Rounds& rounds, ProbePasses& model, ProbePasses& other, Pass pass,
                 const std::vector<std::int32_t>& of_rows, const MeasuredRows& measured,
                 double seconds) {
  const double stop_at = now_seconds() + seconds;
  for (const std::int32_t rows : of_rows) {
    if (rounds.size() >= 2 && now_seconds() > stop_at) break;
    TimedRows timed{rows, pass(model, rows, model.near(), other), std::nullopt};
    if (timed_far(rows, measured)) timed.far = pass(model, rows, model.far(), other);
    rounds.add(timed);
  }
}

struct Probes {
  Probes(const LoadedModel& target_model, const LoadedModel& draft_model, DeviceSampler* sampler,
         std::int32_t most_rows, const std::stop_token& stop)
      : target(*target_model.model, *target_model.pool,
               sampler
                   ? make_judge_probe(*sampler, target_model.model->config().vocab_size, most_rows)
                   : nullptr,
               most_rows, stop),
        draft(*draft_model.model, *draft_model.pool,
              sampler ? make_draw_probe(*sampler, most_rows) : nullptr, most_rows, stop) {}
  /// Only devices that sample record passes, and not those of streamed layers.
  void warm_up(bool samples) {
    if (!samples) return;
    draft.warm_up_as_draft();
    if (target.is_split() && !target.is_streamed()) target.warm_up_as_target();
  }
  ProbePasses target, draft;
};

}  // namespace

bool can_measure(const LoadedModel& target, const LoadedModel& draft) {
  const auto has_room = [](const LoadedModel& m) {
    return std::min(m.model->max_positions(), m.pool->free_slots()) >= C::least_context;
  };
  return has_room(target) && has_room(draft);
}

std::int32_t slots_to_measure_all(const LoadedModel& loaded, const MeasuredRows& rows) {
  const Extent empty(*loaded.model, loaded.pool->layout().slots(), rows.pass);
  return std::max({C::least_context, empty.rows + empty.far, 2 * empty.rows});
}

bool can_measure_all(const LoadedModel& target, const LoadedModel& draft,
                     const MeasuredRows& rows) {
  return can_measure(target, draft) && !is_cut(target, rows.pass) && !is_cut(draft, rows.pass);
}

std::optional<CostTable> measure_costs(const LoadedModel& target, const LoadedModel& draft,
                                       DeviceSampler* sampler, const MeasuredRows& rows,
                                       double budget_seconds, const std::stop_token& stop) try {
  const bool all = can_measure_all(target, draft, rows);
  Probes probes(target, draft, sampler, rows.pass, stop);
  probes.warm_up(sampler != nullptr);
  // Large models load for many seconds: half a second more for costs that reach far enough.
  probes.target.seconds(1, probes.target.near());
  const double pass = probes.target.seconds(1, probes.target.near());
  budget_seconds =
      std::max(budget_seconds, std::min(C::budget_passes * pass, C::most_budget_seconds));

  const double start = now_seconds();
  Rounds target_rounds, draft_rounds, first_draft_rounds;
  first_round(target_rounds, probes.target, probes.draft, target_pass,
              timed_rows(rows, probes.target), rows, budget_seconds / 4);
  first_round(draft_rounds, probes.draft, probes.target, draft_pass, timed_rows(rows, probes.draft),
              rows, budget_seconds / 4);
  first_round(first_draft_rounds, probes.draft, probes.target, first_draft_pass, {1, 2}, rows,
              budget_seconds / 4);
  // A round that still takes much off says that others were disturbed: then for longer.
  double taken_off = 1.0;
  for (int round = 2;; ++round) {
    const double spent = now_seconds() - start;
    if (round > 2 && spent > budget_seconds && taken_off < C::disturbed) break;
    if (round > 2 && spent > C::patience * budget_seconds) break;
    if (round > C::least_rounds && taken_off < C::steady) break;
    taken_off = std::max(target_rounds.repeat(), draft_rounds.repeat());
    first_draft_rounds.repeat();
  }
  CostTable table;
  table.fingerprint = cost_fingerprint(*target.model, *draft.model);
  table.cut = !all;
  table.target = PassCosts(probes.target.near(), probes.target.far(), target_rounds.points());
  table.draft = PassCosts(probes.draft.near(), probes.draft.far(), draft_rounds.points());
  table.first_draft =
      PassCosts(probes.draft.near(), probes.draft.far(), first_draft_rounds.points());
  return table;
} catch (const Stopped&) {
  return std::nullopt;
}

TableCheck check_table(const CostTable& table, const LoadedModel& target, const LoadedModel& draft,
                       DeviceSampler* sampler, const MeasuredRows& rows,
                       const std::stop_token& stop) try {
  Probes probes(target, draft, sampler, rows.pass, stop);
  probes.warm_up(sampler != nullptr);
  std::int32_t several = 1;  // a number of rows that was timed
  for (const auto& point : table.target.points()) {
    if (point.rows <= std::min(8, probes.target.most_rows())) several = point.rows;
  }
  const std::int32_t near = probes.target.near();
  struct Sample {
    LeastSeconds passes;
    double by_table;
  };
  std::array samples = {
      Sample{target_pass(probes.target, 1, near, probes.draft), table.target.seconds(1, near)},
      Sample{target_pass(probes.target, several, near, probes.draft),
             table.target.seconds(several, near)},
      Sample{draft_pass(probes.draft, 1, near, probes.target), table.draft.seconds(1, near)}};
  // Sizes depend on costs against one another. All of them may follow the machine's clock.
  constexpr int least_rounds = 2;
  const double start = now_seconds();
  const ProcessorWatch watch(target.model->device().shares_host_memory());
  double least = 0.0, most = 0.0;
  for (int round = 1; round <= least_rounds || now_seconds() - start < C::check_seconds; ++round) {
    least = std::numeric_limits<double>::infinity();
    most = 0.0;
    for (Sample& sample : samples) {
      sample.passes.time();
      const double ratio = sample.passes.seconds() / sample.by_table;
      least = std::min(least, ratio);
      most = std::max(most, ratio);
    }
    if (most <= C::most_apart * least && most <= C::most_off && least >= 1.0 / C::most_off)
      return TableCheck::holds;
  }
  // Load makes passes longer, never shorter.
  const bool by_load = least * C::most_apart >= 1.0 && watch.disturbed(C::least_share_run);
  return by_load ? TableCheck::disturbed : TableCheck::differs;
} catch (const Stopped&) {
  return TableCheck::differs;
}

}  // namespace coppice
