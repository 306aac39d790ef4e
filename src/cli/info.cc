#include "cli/command.h"
#include "cli/options.h"
#include "cli/terminal.h"
#include "models/model.h"

namespace coppice::cli {

int info(const std::vector<std::string>& arguments) {
  po::options_description none;
  po::options_description hidden;
  hidden.add_options()("dir", po::value<std::vector<std::string>>());
  po::positional_options_description positional;
  positional.add("dir", -1);
  po::variables_map values;
  if (!parse(arguments, none,
             "coppice info DIR: describe a model folder and say what of it coppice cannot run\n",
             values, hidden, positional)) {
    return 0;
  }
  if (values.count("dir") == 0 || values["dir"].as<std::vector<std::string>>().size() != 1) {
    throw_usage("info takes one model folder: coppice info DIR");
  }
  write_out(describe_model(values["dir"].as<std::vector<std::string>>()[0]));
  return 0;
}

}  // namespace coppice::cli
