#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "base/error.h"
#include "study/summary.h"

namespace coppice::study {
namespace {

/// With `digits` after the point; "-" for no number.
std::string fixed(double value, int digits) {
  if (!std::isfinite(value)) return "-";
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.*f", digits, value);
  return text.data();
}

std::string with_interval(const Estimate& estimate, int digits) {
  if (!std::isfinite(estimate.low)) return fixed(estimate.value, digits);
  return cat(fixed(estimate.value, digits), " [", fixed(estimate.low, digits), ", ",
             fixed(estimate.high, digits), "]");
}

/// Six digits, empty for no number.
std::string exact(double value) {
  if (!std::isfinite(value)) return {};
  std::array<char, 64> text{};
  const auto end =
      std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::general, 6)
          .ptr;
  return std::string(text.data(), end);
}

std::string percent(double part, double whole) {
  return whole > 0.0 ? fixed(100.0 * part / whole, 1) : "-";
}

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
  const bool shaped = !c.widths.empty() || !c.tree.empty();
  std::vector<std::string> row = {
      c.name(),
      c.plain() ? "0" : (shaped ? "" : (c.tree_size > 0 ? cat(c.tree_size) : "auto")),
      c.tree_depth > 0 ? cat(c.tree_depth) : "",
      c.beam_width > 0 ? cat(c.beam_width) : "",
      c.threshold > 0.0 ? number_text(c.threshold) : "",
      widths_text(c.widths),
      c.tree.string(),
      number_text(c.temperature),
      c.draft_temperature >= 0.0 ? number_text(c.draft_temperature) : "",
      name_of(c.acceptance),
      s.kind.empty() ? "all" : s.kind,
      cat(s.prompts),
      cat(s.tokens),
      cat(s.steps)};
  for (const Estimate& e :
       {s.accepted_length, s.acceptance_rate, s.accepted_share, s.tokens_per_second, s.speedup}) {
    add_estimate(row, e);
  }
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

std::vector<Column> named_columns() {
  return {{"policy", Align::left}, {"tree", Align::left}, {"temperature"}, {"rule", Align::left}};
}

std::vector<std::string> names_of(const Cell& c) {
  const bool shaped = !c.widths.empty() || !c.tree.empty();
  std::string size = shaped ? "given" : (c.tree_size > 0 ? cat(c.tree_size) : "auto");
  if (c.plain()) size.clear();
  return {c.plain() ? "plain" : c.name(), size, number_text(c.temperature), name_of(c.acceptance)};
}

}  // namespace

Table summary_table(const Summary& summary) {
  Table table;
  table.columns = named_columns();
  for (const char* name :
       {"accepted length [95%]", "acceptance rate", "tokens/s", "speed-up [95%]"}) {
    table.columns.push_back({name});
  }
  for (const SummaryRow& s : summary.rows) {
    std::vector<std::string> row = names_of(s.cell);
    row.push_back(with_interval(s.accepted_length, 2));
    row.push_back(fixed(s.acceptance_rate.value, 3));
    row.push_back(fixed(s.tokens_per_second.value, 1));
    row.push_back(with_interval(s.speedup, 2));
    table.rows.push_back(std::move(row));
  }
  for (const OracleRow& o : summary.oracle) {
    table.rows.push_back({"oracle", cat(o.size), number_text(o.temperature), "",
                          with_interval(o.accepted_length, 2)});
  }
  return table;
}

Table step_table(const Summary& summary) {
  Table table;
  table.columns = named_columns();
  for (const char* name : {"draft passes", "tree size", "us", "draft %", "drawing %", "tree %",
                           "target %", "judging %", "other %"}) {
    table.columns.push_back({name});
  }
  for (const SummaryRow& s : summary.rows) {
    const Components& t = s.seconds;
    std::vector<std::string> row = names_of(s.cell);
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
  for (const char* name :
       {"policy", "tree_size", "tree_depth", "beam_width", "threshold", "widths", "tree",
        "temperature", "draft_temperature", "acceptance", "kind", "prompts", "tokens", "steps"}) {
    table.columns.push_back({name});
  }
  for (const char* name :
       {"accepted_length", "acceptance_rate", "accepted_share", "tokens_per_second", "speedup"}) {
    for (const char* end : {"", "_low", "_high"}) table.columns.push_back({cat(name, end)});
  }
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
        "oracle", cat(o.size),    "", "", "", "", "", number_text(o.temperature), "", "",
        "all",    cat(o.prompts), "", ""};
    add_estimate(row, o.accepted_length);
    table.rows.push_back(std::move(row));
  }
  return table;
}

}  // namespace coppice::study
