#include "study/report/setting_columns.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/error.h"

namespace coppice::study {

SettingColumns::SettingColumns(const Summary& summary) {
  for (const SummaryRow& row : summary.rows) {
    with_kind_ = with_kind_ || !row.kind.empty();
    with_pair_ = with_pair_ || !row.cell.pair.empty();
  }
}

std::vector<Column> SettingColumns::columns() const {
  std::vector<Column> columns;
  if (with_kind_) columns.push_back({"kind", Align::left});
  if (with_pair_) columns.push_back({"pair", Align::left});
  columns.insert(
      columns.end(),
      {{"policy", Align::left}, {"tree", Align::right}, {"temperature"}, {"rule", Align::left}});
  return columns;
}

std::vector<std::string> SettingColumns::front(const std::string& kind,
                                               const std::string& pair) const {
  std::vector<std::string> cells;
  if (with_kind_) cells.push_back(kind);
  if (with_pair_) cells.push_back(pair);
  return cells;
}

std::vector<std::string> SettingColumns::of(const SummaryRow& row) const {
  const Cell& cell = row.cell;
  std::vector<std::string> cells = front(row.kind, cell.pair);
  cells.insert(cells.end(), {cell.plain() ? "plain" : cell.name(), cell.size_text(),
                             number_text(cell.temperature), name_of(cell.acceptance)});
  return cells;
}

std::vector<std::string> SettingColumns::of_oracle(const OracleRow& row) const {
  std::vector<std::string> cells = front("", row.pair);
  cells.insert(cells.end(), {"oracle", cat(row.size), number_text(row.temperature), ""});
  return cells;
}

Table setting_table(const Summary& summary, const std::vector<std::string>& names,
                    const std::function<std::vector<std::string>(const SummaryRow&)>& figures) {
  const SettingColumns settings(summary);
  Table table;
  table.columns = settings.columns();
  for (const std::string& name : names) table.columns.push_back({name});
  for (const SummaryRow& s : summary.rows) {
    std::vector<std::string> own = figures(s);
    if (own.empty()) continue;
    std::vector<std::string> row = settings.of(s);
    std::move(own.begin(), own.end(), std::back_inserter(row));
    table.rows.push_back(std::move(row));
  }
  return table;
}

}  // namespace coppice::study
