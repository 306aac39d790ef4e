#include "study/setting_columns.h"

#include <algorithm>

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
  for (const Column& column : {Column{"policy", Align::left}, Column{"tree", Align::right},
                               Column{"temperature"}, Column{"rule", Align::left}}) {
    columns.push_back(column);
  }
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
  for (const std::string& text :
       std::vector<std::string>{cell.plain() ? "plain" : cell.name(), cell.size_text(),
                                number_text(cell.temperature), name_of(cell.acceptance)}) {
    cells.push_back(text);
  }
  return cells;
}

std::vector<std::string> SettingColumns::of_oracle(const OracleRow& row) const {
  std::vector<std::string> cells = front("", row.pair);
  for (const std::string& text :
       {std::string("oracle"), cat(row.size), number_text(row.temperature), std::string()}) {
    cells.push_back(text);
  }
  return cells;
}

}  // namespace coppice::study
