#include "sizing/cost_table.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/json_file.h"
#include "sizing/constants.h"

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
      points_(without_dips(std::move(points))) {}

double PassCosts::at(double rows, double prefix) const {
  const std::vector<Point>& points = points_;
  const double along = (prefix - prefix_short_) / (prefix_long_ - prefix_short_);
  const auto at = [&](const Point& p) {
    return std::max(p.seconds_short + along * (p.seconds_long - p.seconds_short),
                    0.5 * p.seconds_short);
  };
  if (points.size() == 1) return at(points[0]) * rows / points[0].rows;
  auto upper = std::lower_bound(points.begin(), points.end(), rows,
                                [](const Point& p, double r) { return p.rows < r; });
  if (upper == points.begin()) return at(*upper);
  auto lower = upper - 1;
  if (upper == points.end()) {
    // Beyond the table, the slope of its upper half: the last two rows may be a bucket's end.
    --upper;
    lower = points.begin();
    while (lower + 1 < upper && (lower + 1)->rows <= upper->rows / 2) ++lower;
  }
  const double share = (rows - lower->rows) / (upper->rows - lower->rows);
  return at(*lower) + share * (at(*upper) - at(*lower));
}

double PassCosts::seconds(double rows, std::int32_t texts, std::int64_t kv_tokens) const {
  const double prefix = static_cast<double>(kv_tokens) / texts;
  if (texts == 1) return at(rows, prefix);
  const double of_each = std::max(1.0, rows / texts);
  return at(rows, prefix_short_) + texts * (at(of_each, prefix) - at(of_each, prefix_short_));
}

double CostTable::target_seconds(const StepWork& work) const {
  return target.seconds(work.rows(), work.texts, work.kv_tokens);
}

double CostTable::first_draft_seconds(const StepWork& work) const {
  const auto length = static_cast<std::int32_t>(work.kv_tokens / work.texts);
  if (work.drafting <= 1) return first_draft_seconds(length);
  constexpr int new_tokens = 2;  // of a text: the last that was accepted, and the root
  return draft.seconds(new_tokens * work.drafting, work.drafting,
                       std::int64_t{length} * work.drafting) +
         std::max(0.0, first_draft_seconds(length) - draft.seconds(new_tokens, length));
}

double CostTable::later_draft_seconds(const StepWork& work) const {
  const std::int32_t texts = work.draft_texts();
  return draft.seconds(work.draft_rows(), texts, work.kv_tokens / work.texts * texts);
}

double CostTable::host_seconds(const StepWork& work) {
  return SizingConstants::step_overhead_seconds * work.drafting +
         SizingConstants::node_seconds * work.nodes;
}

std::string cost_fingerprint(const Model& target, const Model& draft) {
  const auto one = [](const Model& m) {
    const ModelConfig& c = m.config();
    const Device& device = m.device();
    // A GPU keeps KV in what it computes in.
    const bool names_kv = device.shares_host_memory() && device.kv_dtype() != DType::f32;
    const auto windowed =
        std::count_if(c.layer_specs.begin(), c.layer_specs.end(),
                      [](const LayerSpec& layer) { return layer.attention.window > 0; });
    const std::string formats = m.quantised_formats();
    return cat(compute_name(m), " ", formats.empty() ? "" : formats + " ",
               names_kv ? cat("KV ", name_of(device.kv_dtype()), " ") : "", c.layers, "x",
               c.hidden_size, "x", c.intermediate_size, "/", c.heads, ":", c.kv_heads, "x",
               c.head_dim, "/", c.vocab_size,
               windowed > 0 ? cat(", ", windowed, " with windows") : "",
               m.streamed_bytes() > 0 ? cat(", ", m.streamed_bytes(), " bytes streamed") : "",
               m.devices().size() > 1 ? cat(", over ", m.devices().size(), " devices") : "");
  };
  return cat(target.device().description(), ", ", target.device().threads(), " threads, target ",
             one(target), ", draft ", one(draft));
}

std::optional<CostTable> read_cost_table(const std::filesystem::path& file,
                                         const std::optional<std::string>& fingerprint) {
  constexpr std::uintmax_t largest_file = std::uintmax_t{1} << 20;
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) return std::nullopt;
  const auto complain = [&](const std::string& what) {
    throw_failure(cat("cost table ", quote(file.string()), ": ", what,
                      "; name another file, or delete it to have the costs measured again"));
  };
  CostTable table;
  const std::string text = read_file(file, "cost table", largest_file);
  try {
    const JsonObject json = parse_json_object(text, "");
    table.fingerprint = json->at("fingerprint").get<std::string>();
    table.target = from_json(json->at("target"));
    table.draft = from_json(json->at("draft"));
    if (json->contains("first_draft")) table.first_draft = from_json(json->at("first_draft"));
    if (json->contains("doubts")) {
      const auto doubts = json->at("doubts").get<double>();
      if (!(doubts >= 0 && doubts < SizingConstants::most_doubts)) throw_failure("out of range");
      table.doubts = static_cast<std::int32_t>(doubts);
    }
  } catch (const std::exception&) {
    complain("not a cost table as this program writes them");
  }
  if (fingerprint && table.fingerprint != *fingerprint) {
    complain(cat("measured for ", quote(table.fingerprint), ", this is ", quote(*fingerprint)));
  }
  return table;
}

std::string text_of(const CostTable& table) {
  Json json = {{"fingerprint", table.fingerprint},
               {"target", to_json(table.target)},
               {"draft", to_json(table.draft)}};
  if (!table.first_draft.points().empty()) json["first_draft"] = to_json(table.first_draft);
  if (table.doubts > 0) json["doubts"] = table.doubts;
  return json.dump(1) + "\n";
}

void write_cost_table(const std::filesystem::path& file, const CostTable& table) {
  write_file(file, text_of(table));
}

}  // namespace coppice
