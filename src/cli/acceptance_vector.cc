#include "cli/acceptance_vector.h"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "base/error.h"
#include "cli/option_values.h"
#include "cli/terminal.h"
#include "study/acceptance/acceptance.h"

namespace coppice::cli {
namespace {

bool is_number(const std::string& text) {
  double number = 0.0;
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stopped == end;
}

// "0.6,0.1", if it is not the name of a file; with a slip like "0.6,a", too.
bool is_list(const std::string& text) {
  std::error_code ignored;
  if (text.empty() || std::filesystem::exists(text, ignored)) return false;
  if (text.find(',') == std::string::npos) return is_number(text);
  const std::vector<std::string> items = items_in("acceptance-vector", text);
  return std::any_of(items.begin(), items.end(), is_number);
}

}  // namespace

void tell_usual_acceptance(const po::variables_map& values, const GenerateOptions& options) {
  const bool planned = std::holds_alternative<Sequoia>(options.speculation);
  if (!planned || values.count("acceptance-vector") != 0) return;
  tell(
      "sequoia's tree is planned for the shipped pair's acceptance at temperature 0.8; coppice "
      "plan "
      "measures another's, for --acceptance-vector");
}

void read_acceptance_vector(const po::variables_map& values, const EngineOptions& engine,
                            GenerateOptions& options) {
  if (std::holds_alternative<SequoiaTree>(options.speculation)) {
    const std::string differs = study::map_mismatch(text_in(values, "tree"), engine, options);
    if (!differs.empty()) tell(cat("grow map used all the same: ", differs));
  }
  if (values.count("acceptance-vector") == 0) return;
  const std::string text = text_in(values, "acceptance-vector");
  std::vector<double> vector;
  if (is_list(text)) {
    for (const std::string& item : items_in("acceptance-vector", text)) {
      vector.push_back(number_in<double>("acceptance-vector", item, 0.0, 1.0,
                                         " from 0 to 1, or name a file of coppice plan"));
    }
  }
  auto* sequoia = std::get_if<Sequoia>(&options.speculation);
  if (sequoia == nullptr) {  // refused before the file is read, but for policy none
    PolicyOptions refused = policy_options(values);
    refused.acceptance_vector = {0.0};
    speculation_of(refused);
    return;
  }
  if (vector.empty()) {
    const study::MeasuredPair pair = study::read_measured_pair(text);
    study::require_pair(text, pair, engine);
    vector = study::vector_to_plan_for(study::setting_for(text, pair, options));
  }
  sequoia->acceptance = std::move(vector);
  options.validate();
}

}  // namespace coppice::cli
