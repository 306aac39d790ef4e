// What an answer may be, as options say it.
#pragma once

#include <boost/program_options.hpp>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "coppice.h"

namespace coppice::cli {

namespace po = boost::program_options;

/// --json, --json-schema, --regex, --choice and --grammar.
po::options_description constraint_options();

/// What these say, before there is an engine.
struct ConstraintSource {
  enum class Kind : std::uint8_t { none, json, json_schema, regex, choice, grammar };
  Kind kind = Kind::none;
  std::vector<std::string> texts;  ///< choice: all; json: none; else one

  auto operator<=>(const ConstraintSource&) const = default;
};

/// Reads the file of a schema or a grammar. `files`: values may name some; else they are the text
/// itself. Throws Error(usage) for more than one constraint, Error(failure) for a file that cannot
/// be read.
ConstraintSource constraint_in(const po::variables_map& values, bool files = true);

/// Builds each constraint of an engine once.
class Constraints {
 public:
  Constraint build(const Engine& engine, const ConstraintSource& source);

 private:
  std::map<ConstraintSource, Constraint> built_;
};

}  // namespace coppice::cli
