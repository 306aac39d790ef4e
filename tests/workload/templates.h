// Small trees that tests replay.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "reference/tiny_model.h"
#include "workload/tree_template.h"

namespace coppice::testing {

inline void expect_says(const std::string& what, const char* part) {
  EXPECT_NE(what.find(part), std::string::npos) << what;
}

/// A template of five branches: one of a single token's prompt, one without tokens.
inline nlohmann::json small_template() {
  return nlohmann::json::parse(R"({"incompleted": false, "prompt": "Once upon a time", "data": {
      "0": {"id": 0, "value": 20, "start": -19, "end": 0, "children": [1, 2, 3]},
      "1": {"id": 1, "value": 10, "start": 1, "end": 10, "children": []},
      "2": {"id": 2, "value": 16, "start": 1, "end": 16, "children": [4, 5]},
      "3": {"id": 3, "value": 0, "start": 1, "end": 0, "children": []},
      "4": {"id": 4, "value": 8, "start": 17, "end": 24, "children": []},
      "5": {"id": 5, "value": 12, "start": 19, "end": 30, "children": []}}})");
}

/// A file that is gone with its test.
class TemplateFile {
 public:
  explicit TemplateFile(const std::string& text) { std::ofstream(path()) << text; }
  std::filesystem::path path() const { return folder_.path() / "templates.json"; }

 private:
  TemporaryFolder folder_;
};

/// Branches begin when their parents have ended, some of them later.
inline workload::TreeTemplate random_template(std::mt19937& random) {
  const auto below = [&](std::uint32_t n) { return static_cast<std::int64_t>(random() % n); };
  workload::TreeTemplate tree;
  tree.name = "random";
  const std::int64_t prompt = 1 + below(9);
  tree.nodes.push_back({-1, prompt, 1 - prompt, 0});
  for (std::int64_t nodes = 1 + below(12); nodes > 0; --nodes) {
    const auto parent =
        static_cast<std::int32_t>(below(static_cast<std::uint32_t>(tree.nodes.size())));
    const std::int64_t tokens = below(7), pause = below(4) == 0 ? below(5) : 0;
    const std::int64_t begin = tree.nodes[static_cast<std::size_t>(parent)].end + 1 + pause;
    tree.nodes.push_back({parent, tokens, begin, begin + tokens - 1});
  }
  return tree;
}

}  // namespace coppice::testing
