// Command lines of benches.
#pragma once

#include <array>
#include <boost/program_options.hpp>
#include <ctime>
#include <exception>
#include <iostream>
#include <optional>
#include <string>

#include "base/error.h"
#include "cli/option_values.h"
#include "coppice.h"
#include "models/weight_source.h"

namespace coppice::bench {

/// Parses what main() was given. False: help was asked for, and is printed. Error(usage) for an
/// unknown option, a malformed value and a word that belongs to no option.
inline bool parse_options(int argc, char** argv,
                          const boost::program_options::options_description& options,
                          boost::program_options::variables_map& values) {
  try {
    boost::program_options::store(boost::program_options::parse_command_line(argc, argv, options),
                                  values);
    boost::program_options::notify(values);
  } catch (const boost::program_options::error& error) {
    throw_usage(cat(error.what(), "; --help lists the options"));
  }
  if (values.count("help") != 0) std::cout << options;
  return values.count("help") == 0;
}

/// The device of that name. Error(usage) for an unknown one.
inline DeviceKind device_in(const std::string& text) {
  constexpr std::array all = {DeviceKind::automatic, DeviceKind::cpu, DeviceKind::cuda};
  return cli::named("device", text, all);
}

/// What --target-weights or --draft-weights names; Error(usage) likewise.
inline WeightRounding rounding_in(const std::string& text) {
  constexpr std::array all = {WeightRounding::keep, WeightRounding::q8_0, WeightRounding::q6_k,
                              WeightRounding::q4_k, WeightRounding::q4_0, WeightRounding::fp8,
                              WeightRounding::int4};
  return cli::named("weights", text, all);
}

/// A quantised format by its name in files, like Q4_K.
inline WeightFormat format_in(const std::string& text) {
  const std::optional<WeightFormat> format = format_named(text);
  if (format && !dtype_of(*format)) return *format;
  throw_usage(cat("format ", text, ": name quantised formats as GGUF does, like Q4_K"));
}

/// What --cpu-dtype or --dtype names; Error(usage) likewise.
inline CpuDtype cpu_dtype_in(const std::string& text) {
  constexpr std::array all = {CpuDtype::automatic, CpuDtype::f32, CpuDtype::bf16};
  return cli::named("cpu-dtype", text, all);
}

/// CPU time of the process.
inline double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// "1,4,16" as numbers of rows; Error(usage) for anything else.
inline std::vector<std::int32_t> rows_in(const std::string& list) {
  std::vector<std::int32_t> rows;
  std::stringstream words(list);
  for (std::string word; std::getline(words, word, ',');) {
    std::int32_t number = 0;
    const char* const end = word.data() + word.size();
    const auto [read, error] = std::from_chars(word.data(), end, number);
    if (error != std::errc() || read != end || number < 1) {
      throw_usage(cat("--rows ", list, ": use numbers of rows from 1 on, e.g. 1,4,16"));
    }
    rows.push_back(number);
  }
  return rows;
}

/// What main() returns after an exception: 2 for wrong usage, else 1.
inline int exit_code_of(const std::exception& error) {
  const auto* known = dynamic_cast<const Error*>(&error);
  return known != nullptr && known->kind() == ErrorKind::usage ? 2 : 1;
}

}  // namespace coppice::bench
