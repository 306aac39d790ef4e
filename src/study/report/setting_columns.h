// The columns by which a study's tables name their rows.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "study/figures/table.h"
#include "study/report/summary.h"

namespace coppice::study {

/// Policy, tree size, temperature and rule; kind and pair in a study that has several.
class SettingColumns {
 public:
  explicit SettingColumns(const Summary& summary);

  std::vector<Column> columns() const;
  std::vector<std::string> of(const SummaryRow& row) const;
  std::vector<std::string> of_oracle(const OracleRow& row) const;

 private:
  std::vector<std::string> front(const std::string& kind, const std::string& pair) const;

  bool with_kind_ = false, with_pair_ = false;
};

/// A row for each setting for which `figures` gives any, under the setting's columns and `names`.
Table setting_table(const Summary& summary, const std::vector<std::string>& names,
                    const std::function<std::vector<std::string>(const SummaryRow&)>& figures);

}  // namespace coppice::study
