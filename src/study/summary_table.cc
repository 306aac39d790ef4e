#include "base/error.h"
#include "study/setting_columns.h"
#include "study/summary.h"
#include "study/table_text.h"

namespace coppice::study {
namespace {

void add_estimate(std::vector<std::string>& row, const Estimate& estimate) {
  row.push_back(exact(estimate.value));
  row.push_back(exact(estimate.low));
  row.push_back(exact(estimate.high));
}

std::string widths_text(const std::vector<std::int32_t>& widths) {
  std::string text;
  for (const std::int32_t width : widths) text += cat(text.empty() ? "" : " ", width);
  return text;
}

std::vector<std::string> csv_row(const SummaryRow& s) {
  const Cell& c = s.cell;
  std::vector<std::string> row = {
      c.name(),
      c.plain() ? "0" : c.size_text(),
      c.tree_depth > 0 ? cat(c.tree_depth) : "",
      c.beam_width > 0 ? cat(c.beam_width) : "",
      c.threshold > 0.0 ? number_text(c.threshold) : "",
      widths_text(c.widths),
      c.tree.string(),
      number_text(c.temperature),
      c.draft_temperature >= 0.0 ? number_text(c.draft_temperature) : "",
      name_of(c.acceptance),
      c.pair,
      s.kind.empty() ? "all" : s.kind,
      cat(s.prompts),
      cat(s.runs),
      cat(s.tokens),
      cat(s.steps)};
  for (const Estimate& e :
       {s.accepted_length, s.acceptance_rate, s.accepted_share, s.tokens_per_second, s.speedup,
        s.speedup_with_prefill, s.mean_speedup, s.mean_speedup_with_prefill}) {
    add_estimate(row, e);
  }
  row.push_back(cat(s.rounds.size()));
  add_estimate(row, s.rounds_tokens_per_second);
  add_estimate(row, s.rounds_speedup);
  row.push_back(exact(s.draft_passes));
  row.push_back(exact(s.tree_size));
  const Components& t = s.seconds;
  row.push_back(exact(t.prefill));
  for (const double part : {t.draft, t.drawing, t.construction, t.verify, t.judging, t.other}) {
    row.push_back(exact(s.microseconds_per_step(part)));
    row.push_back(exact(t.decode() > 0.0 ? part / t.decode() : 0.0));
  }
  return row;
}

}  // namespace

Table summary_table(const Summary& summary) {
  const SettingColumns settings(summary);
  Table table;
  table.columns = settings.columns();
  for (const char* name : {"prompts", "accepted length [95%]", "acceptance rate [95%]", "tokens/s",
                           "speed-up [95%]"}) {
    table.columns.push_back({name});
  }
  for (const SummaryRow& s : summary.rows) {
    std::vector<std::string> row = settings.of(s);
    row.push_back(cat(s.prompts));
    row.push_back(with_interval(s.accepted_length, 2));
    row.push_back(s.cell.plain() ? "-" : with_interval(s.acceptance_rate, 3));
    row.push_back(fixed(s.tokens_per_second.value, 1));
    row.push_back(with_interval(s.speedup, 2));
    table.rows.push_back(std::move(row));
  }
  for (const OracleRow& o : summary.oracle) {
    std::vector<std::string> row = settings.of_oracle(o);
    row.push_back(cat(o.prompts));
    row.push_back(with_interval(o.accepted_length, 2));
    table.rows.push_back(std::move(row));
  }
  return table;
}

Table step_table(const Summary& summary) {
  const SettingColumns settings(summary);
  Table table;
  table.columns = settings.columns();
  for (const char* name : {"draft passes", "tree size", "us", "draft %", "drawing %", "tree %",
                           "target %", "judging %", "other %"}) {
    table.columns.push_back({name});
  }
  for (const SummaryRow& s : summary.rows) {
    const Components& t = s.seconds;
    std::vector<std::string> row = settings.of(s);
    row.push_back(fixed(s.draft_passes, 2));
    row.push_back(fixed(s.tree_size, 1));
    row.push_back(fixed(s.microseconds_per_step(t.decode()), 0));
    for (const double part : {t.draft, t.drawing, t.construction, t.verify, t.judging, t.other}) {
      row.push_back(percent(part, t.decode()));
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

Table summary_csv(const Summary& summary) {
  Table table;
  for (const char* name : {"policy", "tree_size", "tree_depth", "beam_width", "threshold", "widths",
                           "tree", "temperature", "draft_temperature", "acceptance", "pair", "kind",
                           "prompts", "texts", "tokens", "steps"}) {
    table.columns.push_back({name});
  }
  const auto add_estimates = [&](std::initializer_list<const char*> names) {
    for (const char* name : names) {
      for (const char* end : {"", "_low", "_high"}) table.columns.push_back({cat(name, end)});
    }
  };
  add_estimates({"accepted_length", "acceptance_rate", "accepted_share", "tokens_per_second",
                 "speedup", "speedup_with_prefill", "mean_speedup", "mean_speedup_with_prefill"});
  table.columns.push_back({"rounds"});
  add_estimates({"rounds_tokens_per_second", "rounds_speedup"});
  for (const char* name : {"draft_passes_per_step", "tree_size_mean", "prefill_seconds"}) {
    table.columns.push_back({name});
  }
  for (const char* part : {"draft", "drawing", "construction", "verify", "judging", "other"}) {
    table.columns.push_back({cat(part, "_us_per_step")});
    table.columns.push_back({cat(part, "_share")});
  }
  for (const SummaryRow& row : summary.rows) table.rows.push_back(csv_row(row));
  for (const SummaryRow& row : summary.kinds) table.rows.push_back(csv_row(row));
  for (const OracleRow& o : summary.oracle) {
    std::vector<std::string> row = {
        "oracle", cat(o.size),    "", "", "", "", "", number_text(o.temperature), "", "", o.pair,
        "all",    cat(o.prompts), "", "", ""};
    add_estimate(row, o.accepted_length);
    table.rows.push_back(std::move(row));
  }
  return table;
}

}  // namespace coppice::study
