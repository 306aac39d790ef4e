// All results of a study, as they stand in results.jsonl.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "study/cell.h"
#include "study/oracle_walk.h"
#include "study/record.h"
#include "study/results_store.h"

namespace coppice::study {

/// The oracle's walks along one prompt's text at one temperature.
struct OracleRecord {
  double temperature = 0.0;
  std::int32_t prompt = 0;
  std::string kind;
  std::vector<OracleWalk> walks;  ///< one per tree size
};

/// A line without its end.
std::string to_line(const OracleRecord& record);

/// What a study consists of, by which its results are checked.
struct StudyPlan {
  std::vector<Cell> cells;
  std::int32_t prompts = 0;
  std::vector<double> oracle_temperatures;
};

/// Results in memory and on the disk.
class Results {
 public:
  /// Reads what `store` holds. Throws Error(failure) that names the line for anything that is not a
  /// result of this plan, and for one that stands there twice.
  Results(ResultsStore store, const StudyPlan& plan);

  bool has(const Cell& cell, std::int32_t prompt) const;
  bool has_oracle(double temperature, std::int32_t prompt) const;

  /// To the disk first. Throws as ResultsStore::append does, with nothing added.
  void add(Record record);
  void add(OracleRecord record);

  const std::vector<Record>& records() const { return records_; }
  const std::vector<OracleRecord>& oracle() const { return oracle_; }

 private:
  ResultsStore store_;
  std::vector<Record> records_;
  std::vector<OracleRecord> oracle_;
  std::set<std::pair<std::string, std::int32_t>> done_;  ///< name of cell or oracle, prompt
};

}  // namespace coppice::study
