#include "cli/acceptance_vector.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "cli/option_values.h"
#include "cli/terminal.h"
#include "study/acceptance_file.h"

namespace coppice::cli {
namespace {

// "0.6,0.1", if it is not the name of a file.
bool is_list(const std::string& text) {
  std::error_code ignored;
  return !text.empty() && text.find_first_not_of("0123456789.,+-eE ") == std::string::npos &&
         !std::filesystem::exists(text, ignored);
}

}  // namespace

void read_acceptance_vector(const po::variables_map& values, const EngineOptions& engine,
                            GenerateOptions& options) {
  if (options.policy == Policy::sequoia && !options.tree.empty()) {
    const std::string differs = study::map_mismatch(options.tree, engine, options);
    if (!differs.empty()) tell(cat("grow map used all the same: ", differs));
  }
  if (values.count("acceptance-vector") == 0) return;
  const std::string text = values["acceptance-vector"].as<std::string>();
  if (is_list(text)) {
    options.acceptance_vector.clear();
    for (const std::string& item : items_in("acceptance-vector", text)) {
      options.acceptance_vector.push_back(number_in<double>("acceptance-vector", item));
    }
  } else {
    options.acceptance_vector.assign(1, 0.0);
    options.validate();  // refuses it with a policy that plans no tree, before the file is read
    const study::MeasuredPair pair = study::read_measured_pair(text);
    study::require_pair(text, pair, engine);
    options.acceptance_vector = study::vector_to_plan_for(study::setting_for(text, pair, options));
  }
  options.validate();
}

}  // namespace coppice::cli
