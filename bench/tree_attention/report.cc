#include "report.h"

#include <algorithm>
#include <fstream>

#include "base/error.h"

namespace coppice::bench {
namespace {

std::ofstream opened(const std::string& path) {
  std::ofstream file(path);
  if (!file) throw_failure(cat("cannot write ", path));
  return file;
}

std::string csv_field(const Json& value) {
  if (!value.is_string()) return value.dump();
  std::string text = value.get<std::string>();
  std::replace(text.begin(), text.end(), ',', ' ');
  return text;
}

}  // namespace

void Report::add(const std::string& section, const std::string& cell, const std::string& method,
                 const Json& fields) {
  Json record = {{"section", section}, {"cell", cell}, {"method", method}};
  record.update(fields);
  records_.push_back(std::move(record));
}

void Report::write_json(const std::string& path) const {
  Json all = facts_;
  all["failed"] = failed_;
  all["measurements"] = records_;
  opened(path) << all.dump(1) << "\n";
}

void Report::write_csv(const std::string& path) const {
  std::vector<std::string> columns;
  for (const Json& record : records_) {
    for (const auto& [name, value] : record.items()) {
      if (std::find(columns.begin(), columns.end(), name) == columns.end()) columns.push_back(name);
    }
  }
  std::ofstream file = opened(path);
  for (const std::string& column : columns) file << (&column == &columns[0] ? "" : ",") << column;
  file << "\n";
  for (const Json& record : records_) {
    for (const std::string& column : columns) {
      if (&column != &columns[0]) file << ",";
      if (record.contains(column)) file << csv_field(record[column]);
    }
    file << "\n";
  }
}

Json json_of(const Timing& timing) {
  return {{"us", timing.median_us},
          {"low_us", timing.low_us},
          {"high_us", timing.high_us},
          {"in_pass_us", timing.in_pass_us}};
}

}  // namespace coppice::bench
