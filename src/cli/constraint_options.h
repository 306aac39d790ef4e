// What an answer may be, as options say it.
#pragma once

#include <boost/program_options.hpp>
#include <map>
#include <memory>

#include "constraints/language.h"
#include "coppice.h"

namespace coppice::cli {

namespace po = boost::program_options;

/// --json, --json-schema, --regex, --choice and --grammar.
po::options_description constraint_options();

/// Whether one of these is given.
bool asks_for_constraint(const po::variables_map& values);

/// Reads what options say, and compiles each distinct constraint once: there is no engine yet.
class ConstraintReader {
 public:
  /// Null: they ask for none. Reads the file of a schema or a grammar. `files`: values may name
  /// some; else they are the text itself. Throws Error(usage) for more than one constraint, and as
  /// constraints::compile(); Error(failure) for a file that cannot be read.
  std::shared_ptr<const constraints::Language> read(const po::variables_map& values,
                                                    bool files = true);

 private:
  std::map<constraints::ConstraintSource, std::shared_ptr<const constraints::Language>> known_;
};

/// Builds each constraint of an engine once. All that were asked for outlive it.
class Constraints {
 public:
  Constraint build(const Engine& engine,
                   const std::shared_ptr<const constraints::Language>& language);

 private:
  std::map<const constraints::Language*, Constraint> built_;
};

}  // namespace coppice::cli
