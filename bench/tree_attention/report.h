// What the program leaves behind besides its tables.
#pragma once

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/timing.h"
#include "cells.h"
#include "kernels/cuda/attention/attention.h"

namespace coppice::bench {

using Json = nlohmann::ordered_json;

class Report {
 public:
  /// One measurement; `fields` is an object.
  void add(const std::string& section, const std::string& cell, const std::string& method,
           const Json& fields);
  void set(const std::string& name, const Json& value) { facts_[name] = value; }
  /// Notes that a result is wrong: the program then ends with status 1.
  void fail() { failed_ = true; }
  bool failed() const { return failed_; }

  void write_json(const std::string& path) const;
  /// Every measurement a line, every field that any of them has a column.
  void write_csv(const std::string& path) const;

 private:
  Json facts_ = Json::object();
  std::vector<Json> records_;
  bool failed_ = false;
};

/// What all parts of the program need.
struct Bench {
  std::string filter;
  bool quick = false;
  bool progress = true;
  Ceilings ceilings;
  ResidentBlocks blocks;
  cudaStream_t stream = nullptr;
  std::vector<Anchor> anchors;
  std::vector<Cell> snapshots;  ///< of templates that were asked for
  Report report;

  std::int32_t samples() const { return quick ? 9 : 31; }
  /// Bytes of keys and values that lie between two uses of a set.
  static constexpr double rotated_bytes = 200e6;
};

/// Relative errors above it are failures.
inline constexpr double error_limit = 1e-2;

Json json_of(const Timing& timing);

}  // namespace coppice::bench
