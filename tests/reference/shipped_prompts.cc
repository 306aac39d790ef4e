#include "reference/shipped_prompts.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace coppice::testing {

std::vector<std::string> prompts() {
  std::ifstream in(std::filesystem::path(COPPICE_SOURCE_DIR) / "bench/prompts/prompts.jsonl");
  std::vector<std::string> all;
  for (std::string line; std::getline(in, line);) {
    all.push_back(nlohmann::json::parse(line).at("prompt"));
  }
  return all;
}

}  // namespace coppice::testing
