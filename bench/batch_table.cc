#include "batch_table.h"

#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "median.h"

namespace coppice::bench {
namespace {

/// A row's figures by the names of llama-batched-bench's JSON lines, then coppice's own.
struct Figures {
  double t_pp, speed_pp, t_tg, speed_tg, t, speed;
  double accepted, tree, shared, over_plain, over_other;
  double draft, verify, rest;  ///< parts of t_tg
  double preparing;            ///< seconds of t, in draft, verify and rest
};

template <typename Of>
double median(const BatchRow& row, Of of) {
  std::vector<double> values;
  for (const BatchRound& round : row.rounds) values.push_back(of(round));
  return bench::median(std::move(values));
}

int kv_tokens(const BatchRow& row) { return row.texts * (row.prompt_tokens + row.new_tokens); }

Figures figures_of(const BatchRow& row) {
  Figures f{};
  f.t_pp = median(row, [](const BatchRound& r) { return r.prompt_seconds; });
  f.t_tg = median(row, [](const BatchRound& r) { return r.seconds - r.prompt_seconds; });
  f.t = median(row, [](const BatchRound& r) { return r.seconds; });
  f.speed_pp = row.texts * row.prompt_tokens / f.t_pp;
  f.speed_tg = row.texts * row.new_tokens / f.t_tg;
  f.speed = kv_tokens(row) / f.t;
  const auto by_step = [&](double BatchRound::*sum) {
    return median(row, [&](const BatchRound& r) { return r.steps > 0 ? r.*sum / r.steps : 0.0; });
  };
  f.accepted = by_step(&BatchRound::judged);
  f.tree = by_step(&BatchRound::drafted);
  f.shared = by_step(&BatchRound::shared);
  f.over_plain = bench::median(row.over_plain);
  f.over_other = bench::median(row.over_other);
  const auto part = [&](double BatchRound::*seconds) {
    return median(row,
                  [&](const BatchRound& r) { return r.*seconds / (r.seconds - r.prompt_seconds); });
  };
  f.draft = part(&BatchRound::draft_seconds);
  f.verify = part(&BatchRound::verify_seconds);
  f.rest = 1.0 - f.draft - f.verify;
  f.preparing = median(row, [](const BatchRound& r) { return r.preparing_seconds; });
  return f;
}

}  // namespace

double BatchRow::rate(std::size_t round) const {
  return texts * new_tokens / (rounds[round].seconds - rounds[round].prompt_seconds);
}

std::string table_of(const std::vector<BatchRow>& rows, const std::string& other) {
  char line[500];
  std::snprintf(line, sizeof line,
                "| %-30s | %6s | %6s | %4s | %6s | %8s | %8s | %8s | %8s | %8s | %8s | %8s | %6s | "
                "%6s | %8s | %8s | %7s | %8s | %6s | %8s |\n",
                "setting", "PP", "TG", "B", "N_KV", "T_PP s", "S_PP t/s", "T_TG s", "S_TG t/s",
                "T s", "S t/s", "accepted", "tree", "shared", "x plain", ("x " + other).c_str(),
                "draft %", "verify %", "rest %", "T_prep s");
  std::string text = line;
  for (const char c : std::string(line)) text += c == '|' || c == '\n' ? c : '-';
  for (const BatchRow& row : rows) {
    const Figures f = figures_of(row);
    std::snprintf(line, sizeof line,
                  "| %-30s | %6d | %6d | %4d | %6d | %8.3f | %8.2f | %8.3f | %8.2f | %8.3f | %8.2f "
                  "| %8.2f | %6.1f | %6.1f | %8.3f | %8.3f | %7.1f | %8.1f | %6.1f | %8.3f |\n",
                  row.setting.c_str(), row.prompt_tokens, row.new_tokens, row.texts, kv_tokens(row),
                  f.t_pp, f.speed_pp, f.t_tg, f.speed_tg, f.t, f.speed, f.accepted, f.tree,
                  f.shared, f.over_plain, f.over_other, 100.0 * f.draft, 100.0 * f.verify,
                  100.0 * f.rest, f.preparing);
    text += line;
  }
  return text;
}

nlohmann::ordered_json json_of(const std::vector<BatchRow>& rows, const std::string& other) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const BatchRow& row : rows) {
    const Figures f = figures_of(row);
    std::vector<double> rates, preparing;
    for (std::size_t r = 0; r < row.rounds.size(); ++r) {
      rates.push_back(row.rate(r));
      preparing.push_back(row.rounds[r].preparing_seconds);
    }
    list.push_back({{"setting", row.setting},
                    {"pp", row.prompt_tokens},
                    {"tg", row.new_tokens},
                    {"pl", row.texts},
                    {"n_kv", kv_tokens(row)},
                    {"t_pp", f.t_pp},
                    {"speed_pp", f.speed_pp},
                    {"t_tg", f.t_tg},
                    {"speed_tg", f.speed_tg},
                    {"t", f.t},
                    {"speed", f.speed},
                    {"accepted_length", f.accepted},
                    {"tree_size_mean", f.tree},
                    {"batch_mean", f.shared},
                    {"over_plain", f.over_plain},
                    {"over_" + other, f.over_other},
                    {"draft_part", f.draft},
                    {"verify_part", f.verify},
                    {"rest_part", f.rest},
                    {"t_preparing", f.preparing},
                    {"t_preparing_by_round", preparing},
                    {"speed_tg_by_round", rates},
                    {"over_plain_by_round", row.over_plain},
                    {"over_" + other + "_by_round", row.over_other}});
  }
  return list;
}

}  // namespace coppice::bench
