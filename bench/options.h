// Command lines of benches.
#pragma once

#include <boost/program_options.hpp>
#include <iostream>

namespace coppice::bench {

/// Parses what main() was given. False: help was asked for, and is printed. Throws what
/// Boost.Program_options throws.
inline bool parse_options(int argc, char** argv,
                          const boost::program_options::options_description& options,
                          boost::program_options::variables_map& values) {
  boost::program_options::store(boost::program_options::parse_command_line(argc, argv, options),
                                values);
  boost::program_options::notify(values);
  if (values.count("help") != 0) std::cout << options;
  return values.count("help") == 0;
}

}  // namespace coppice::bench
