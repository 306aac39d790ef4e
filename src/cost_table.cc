#include "cost_table.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/json_file.h"
#include "base/stopwatch.h"
#include "probe_sampling.h"

namespace coppice {
namespace {

using Json = nlohmann::json;

std::vector<PassCosts::Point> without_dips(std::vector<PassCosts::Point> points) {
  double least = std::numeric_limits<double>::infinity(), least_growth = least;
  for (auto p = points.rbegin(); p != points.rend(); ++p) {
    const double growth = std::max(0.0, p->seconds_long - p->seconds_short);
    least = std::min(least, p->seconds_short);
    least_growth = std::min(least_growth, growth);
    p->seconds_short = least;
    p->seconds_long = least + least_growth;
  }
  return points;
}

// Lower hull, from two rows on, by mean cost of both prefixes (Andrew's monotone chain).
std::vector<PassCosts::Point> lower_hull(const std::vector<PassCosts::Point>& points) {
  std::vector<PassCosts::Point> hull;
  const auto cost = [](const PassCosts::Point& p) { return p.seconds_short + p.seconds_long; };
  for (const auto& p : points) {
    // One row is what plain decoding runs, with the caches to itself.
    if (p.rows == 1 && points.size() > 2) continue;
    while (hull.size() >= 2) {
      const auto& a = hull[hull.size() - 2];
      const auto& b = hull.back();
      const double chord = cost(a) + (cost(p) - cost(a)) * (b.rows - a.rows) / (p.rows - a.rows);
      if (cost(b) < chord) break;
      hull.pop_back();
    }
    hull.push_back(p);
  }
  return hull;
}

Json to_json(const PassCosts& costs) {
  Json points = Json::array();
  for (const auto& p : costs.points()) {
    points.push_back(
        {{"rows", p.rows}, {"seconds_short", p.seconds_short}, {"seconds_long", p.seconds_long}});
  }
  return {{"prefix_short", costs.prefix_short()},
          {"prefix_long", costs.prefix_long()},
          {"points", points}};
}

PassCosts from_json(const Json& json) {
  constexpr double most_rows = 65536, most_prefix = 1 << 24, most_seconds = 1e6;
  bool sound = true;
  const auto number = [&](const Json& from, const char* name, double least, double most) {
    const auto value = from.at(name).get<double>();
    sound = sound && value >= least && value <= most;
    return sound ? value : 0.0;
  };
  const auto whole = [&](const Json& from, const char* name, double least, double most) {
    return static_cast<std::int32_t>(number(from, name, least, most));
  };
  std::vector<PassCosts::Point> points;
  for (const Json& p : json.at("points")) {
    points.push_back({whole(p, "rows", 1, most_rows),
                      number(p, "seconds_short", 1e-9, most_seconds),
                      number(p, "seconds_long", 1e-9, most_seconds)});
  }
  sound = sound && !points.empty() && points.front().rows == 1;
  for (std::size_t i = 1; sound && i < points.size(); ++i) {
    sound = points[i].rows > points[i - 1].rows;
  }
  const auto near = whole(json, "prefix_short", 0, most_prefix);
  const auto far = whole(json, "prefix_long", 1, most_prefix);
  if (!sound || far <= near) throw_failure("its points are out of range or order");
  return PassCosts(near, far, std::move(points));
}

}  // namespace

PassCosts::PassCosts(std::int32_t prefix_short, std::int32_t prefix_long, std::vector<Point> points)
    : prefix_short_(prefix_short),
      prefix_long_(prefix_long),
      points_(without_dips(std::move(points))),
      hull_(lower_hull(points_)) {}

double PassCosts::interpolate(const std::vector<Point>& points, std::int32_t rows,
                              std::int32_t prefix) const {
  const double along = static_cast<double>(prefix - prefix_short_) / (prefix_long_ - prefix_short_);
  const auto at = [&](const Point& p) {
    return std::max(p.seconds_short + along * (p.seconds_long - p.seconds_short),
                    0.5 * p.seconds_short);
  };
  if (points.size() == 1) return at(points[0]) * rows / points[0].rows;
  auto upper = std::lower_bound(points.begin(), points.end(), rows,
                                [](const Point& p, std::int32_t r) { return p.rows < r; });
  if (upper == points.begin()) return at(*upper);
  auto lower = upper - 1;
  if (upper == points.end()) {
    // Beyond the table, the slope of its upper half: the last two rows may be a bucket's end.
    --upper;
    lower = points.begin();
    while (lower + 1 < upper && (lower + 1)->rows <= upper->rows / 2) ++lower;
  }
  const double share = static_cast<double>(rows - lower->rows) / (upper->rows - lower->rows);
  return at(*lower) + share * (at(*upper) - at(*lower));
}

double PassCosts::seconds(std::int32_t rows, std::int32_t prefix) const {
  return interpolate(points_, rows, prefix);
}

double PassCosts::hull_seconds(std::int32_t rows, std::int32_t prefix) const {
  return interpolate(hull_, rows, prefix);
}

namespace {

constexpr std::int32_t least_context = 8;

// Passes of one model over slots taken for the purpose.
class ProbePasses {
 public:
  /// `sampling` may be null.
  ProbePasses(Model& model, KvPool& pool, std::unique_ptr<ProbeSampling> sampling,
              std::int32_t most_rows)
      : model_(model), pool_(pool), sampling_(std::move(sampling)) {
    const std::int32_t context = std::min(model.max_positions(), pool.free_slots());
    most_rows_ = std::min({most_rows, model.options().max_rows, context / 2});
    if (context < least_context) {
      throw_failure("costs: too few free KV slots to measure; raise kv_tokens");
    }
    far_ = std::max(2, std::min(context - most_rows_, 512));
    slots_.resize(static_cast<std::size_t>(far_ + most_rows_));
    if (!pool.take(slots_))
      throw_failure("costs: too few free KV slots to measure; raise kv_tokens");
  }
  ~ProbePasses() { pool_.give_back(slots_); }
  ProbePasses(const ProbePasses&) = delete;
  ProbePasses& operator=(const ProbePasses&) = delete;

  std::int32_t most_rows() const { return most_rows_; }
  std::int32_t near() const { return 1; }
  std::int32_t far() const { return far_; }

  double seconds(std::int32_t rows, std::int32_t prefix) { return pass(rows, prefix, rows); }

  /// Runs the passes that begin a step's drafting, a few tokens of which the last has logits,
  /// until a device that records passes has recorded them.
  void warm_up_roots() {
    for (std::int32_t rows = 1; rows <= std::min(16, most_rows_); rows *= 2) {
      for (int time = 0; time < 2; ++time) pass(rows, 1, 1);
    }
  }

 private:
  double pass(std::int32_t rows, std::int32_t prefix, std::int32_t logit_rows) {
    visible_.clear();
    positions_.clear();
    logit_rows_.clear();
    tokens_.clear();
    for (std::int32_t r = 0; r < rows; ++r) {
      // A bush over one stem: half of the rows see each other in a chain, as trees do.
      const std::int32_t until = r < rows / 2 ? rows : r + 1;
      visible_.push_back({slots_[static_cast<std::size_t>(prefix + r)], r, until});
      positions_.push_back(prefix + std::min(r, rows / 2));
      if (r >= rows - logit_rows) logit_rows_.push_back(r);
      tokens_.push_back(static_cast<TokenId>((r * 37 + 11) % model_.config().vocab_size));
    }
    const std::span<const KvSlot> slots = slots_;
    const ForwardBatch batch{
        tokens_,
        positions_,
        slots.subspan(static_cast<std::size_t>(prefix), static_cast<std::size_t>(rows)),
        slots.first(static_cast<std::size_t>(prefix)),
        visible_,
        logit_rows_};
    const double start = now_seconds();
    PassTail* const tail = sampling_ == nullptr ? nullptr : sampling_->stage(logit_rows);
    model_.forward(batch, pool_, tail);
    if (sampling_ != nullptr) sampling_->collect();
    model_.device().synchronize();
    return now_seconds() - start;
  }

  Model& model_;
  KvPool& pool_;
  std::unique_ptr<ProbeSampling> sampling_;
  std::int32_t most_rows_ = 0, far_ = 0;
  std::vector<KvSlot> slots_;
  std::vector<VisibleKv> visible_;
  std::vector<std::int32_t> positions_, logit_rows_;
  std::vector<TokenId> tokens_;
};

// Of so many repetitions the least counts: on a shared machine noise only adds. Long passes are
// repeated less: their noise is a smaller part of them.
constexpr int repetitions = 7, least_repetitions = 2;
constexpr double enough_seconds = 0.008;

// The least of `most` repetitions, fewer where they have taken long enough.
template <typename Pass>
double least_seconds(int most, Pass pass) {
  const double start = now_seconds();
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < most; ++i) {
    if (i >= least_repetitions && now_seconds() > start + enough_seconds) break;
    least = std::min(least, pass());
  }
  return least;
}

// One row alone, as plain decoding runs it.
double time_alone(ProbePasses& model, std::int32_t prefix) {
  // Caches take a few dozen passes of a small model to settle on what they keep of the weights.
  constexpr double settling_seconds = 0.012;
  const double settled = now_seconds() + settling_seconds;
  do {
    model.seconds(1, prefix);
  } while (now_seconds() < settled);
  return least_seconds(2 * repetitions, [&] { return model.seconds(1, prefix); });
}

// `rows` rows of `model` between `others` one-row passes of the other model.
double time_in_turn(ProbePasses& model, std::int32_t rows, std::int32_t prefix, ProbePasses& other,
                    int others) {
  model.seconds(rows, prefix);
  return least_seconds(repetitions, [&] {
    for (int k = 0; k < others; ++k) other.seconds(1, std::min(prefix, other.far()));
    return model.seconds(rows, prefix);
  });
}

// In the order of what is most worth knowing. Products run in buckets of rows (kernels/linear.h):
// where one ends, the next row is timed as well, so that a step of the costs stays a step.
std::vector<std::int32_t> timed_rows(std::int32_t most) {
  std::vector<std::int32_t> all = {1,  2,  8,  64, 16, 17, 65, 32, 4,  33, 128, 129,
                                   12, 24, 48, 80, 81, 6,  96, 10, 14, 3,  5,   7};
  for (std::int32_t rows = 192; rows <= most; rows += rows / 2) all.push_back(rows);
  std::erase_if(all, [&](std::int32_t rows) { return rows > most; });
  return all;
}

PassCosts measure_in_turn(ProbePasses& model, ProbePasses& other, bool is_target,
                          double budget_seconds) {
  const double stop_at = now_seconds() + budget_seconds;
  std::vector<PassCosts::Point> points;
  for (const std::int32_t rows : timed_rows(model.most_rows())) {
    if (points.size() >= 2 && now_seconds() > stop_at) break;
    const auto time = [&](std::int32_t prefix) {
      if (is_target) {
        // A row's place in the caches differs between plain decoding and a step: the plain row
        // is what speculation is held against.
        return rows == 1 ? time_alone(model, prefix) : time_in_turn(model, rows, prefix, other, 3);
      }
      // Of a step's draft passes the first finds cold caches, the others warm ones.
      const double cold = time_in_turn(model, rows, prefix, other, 1);
      const double warm = time_in_turn(model, rows, prefix, other, 0);
      return (cold + 2.0 * warm) / 3.0;
    };
    points.push_back({rows, time(model.near()), time(model.far())});
  }
  std::sort(points.begin(), points.end(),
            [](const auto& a, const auto& b) { return a.rows < b.rows; });
  return PassCosts(model.near(), model.far(), std::move(points));
}

}  // namespace

bool can_measure(const Model& model, const KvPool& pool) {
  return std::min(model.max_positions(), pool.free_slots()) >= least_context;
}

CostTable measure_costs(Model& target, KvPool& target_pool, Model& draft, KvPool& draft_pool,
                        DeviceSampler* sampler, std::int32_t most_rows, double budget_seconds) {
  ProbePasses target_passes(
      target, target_pool,
      sampler ? make_judge_probe(*sampler, target.config().vocab_size, most_rows) : nullptr,
      most_rows);
  ProbePasses draft_passes(draft, draft_pool,
                           sampler ? make_draw_probe(*sampler, most_rows) : nullptr, most_rows);
  if (sampler != nullptr) draft_passes.warm_up_roots();
  // Large models load for many seconds: half a second more for costs that reach far enough.
  constexpr double passes_worth = 250.0, most_budget_seconds = 1.5;
  target_passes.seconds(1, target_passes.near());
  const double pass = target_passes.seconds(1, target_passes.near());
  budget_seconds = std::max(budget_seconds, std::min(passes_worth * pass, most_budget_seconds));
  CostTable table;
  table.fingerprint = cost_fingerprint(target, draft);
  table.target = measure_in_turn(target_passes, draft_passes, true, budget_seconds / 2);
  table.draft = measure_in_turn(draft_passes, target_passes, false, budget_seconds / 2);
  return table;
}

std::string cost_fingerprint(const Model& target, const Model& draft) {
  const auto one = [](const Model& m) {
    const ModelConfig& c = m.config();
    return cat(c.layers, "x", c.hidden_size, "x", c.intermediate_size, "/", c.heads, ":",
               c.kv_heads, "x", c.head_dim, "/", c.vocab_size);
  };
  return cat(target.device().description(), " ", name_of(target.device().compute_dtype()), " ",
             target.device().threads(), " threads, target ", one(target), ", draft ", one(draft));
}

std::optional<CostTable> read_cost_table(const std::filesystem::path& file,
                                         const std::optional<std::string>& fingerprint) {
  constexpr std::uintmax_t largest_file = std::uintmax_t{1} << 20;
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) return std::nullopt;
  const auto complain = [&](const std::string& what) {
    throw_failure(cat("cost table ", quote(file.string()), ": ", what,
                      "; delete the file to have the costs measured again"));
  };
  CostTable table;
  const JsonObject json = read_json_object(file, largest_file);
  try {
    table.fingerprint = json->at("fingerprint").get<std::string>();
    table.target = from_json(json->at("target"));
    table.draft = from_json(json->at("draft"));
  } catch (const std::exception&) {
    complain("not a cost table as this program writes them");
  }
  if (fingerprint && table.fingerprint != *fingerprint) {
    complain(cat("measured for ", quote(table.fingerprint), ", this is ", quote(*fingerprint)));
  }
  return table;
}

void write_cost_table(const std::filesystem::path& file, const CostTable& table) {
  const Json json = {{"fingerprint", table.fingerprint},
                     {"target", to_json(table.target)},
                     {"draft", to_json(table.draft)}};
  write_file(file, json.dump(1) + "\n");
}

}  // namespace coppice
