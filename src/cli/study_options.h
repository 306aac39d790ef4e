// The options of `coppice study` and the request that they make.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "cli/options.h"
#include "study/grid/grid.h"

namespace coppice::cli {

po::options_description study_options();
po::options_description study_policy_options();

struct StudyCommand {
  study::StudyRequest request;
  std::filesystem::path out;
  std::vector<std::string> notes;  ///< what is left out, and why; one line each
};

/// Reads the prompts, spans the grid and finds the models. Error(usage) names a wrong option.
StudyCommand study_command(const po::variables_map& values);

}  // namespace coppice::cli
