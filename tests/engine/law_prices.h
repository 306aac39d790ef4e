// Costs of passes that do not depend on the machine, for automatic sizes of texts whose law is
// known.
#pragma once

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/pair.h"
#include "engine/sampled_law.h"

namespace coppice::testing {

/// A cost table under which large trees pay, then none: written once by an engine, then edited.
/// `row_seconds`: what a row adds to the target's millisecond.
inline std::filesystem::path write_law_prices(const TinyPair& pair,
                                              const std::vector<TokenId>& prompt = law_prompt,
                                              double row_seconds = 3e-5) {
  EngineOptions load = pair.options();
  load.cost_table = pair.path() / "costs.json";
  GenerateOptions once;
  once.max_new_tokens = 2;
  Engine::load(load).generate(prompt, once);
  nlohmann::json table = nlohmann::json::parse(std::ifstream(load.cost_table));
  for (const char* model : {"target", "draft"}) {
    table[model]["points"] = nlohmann::json::array();
    for (const int rows : {1, 2, 5, 6, 12, 13, 64}) {
      // The target's costs have steps that trees stop at.
      const double seconds = model[0] == 't' ? 1e-3 + row_seconds * rows + (rows > 5 ? 2e-4 : 0) +
                                                   (rows > 12 ? 1e-3 : 0)
                                             : 1e-4 + 1e-6 * rows;
      table[model]["points"].push_back(
          {{"rows", rows}, {"seconds_short", seconds}, {"seconds_long", seconds}});
    }
  }
  // What was measured there is the machine's.
  table.erase("first_draft");
  std::ofstream(load.cost_table) << table;
  return load.cost_table;
}

}  // namespace coppice::testing
