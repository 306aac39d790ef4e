#include "drafting/shape_json.h"

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/remedy.h"

namespace coppice {
namespace {

// A chain of TreeShape::most_nodes nodes takes 49 MB.
constexpr std::uint64_t largest_file = std::uint64_t{64} << 20;

RankPath path_from_json(const nlohmann::json& json, const std::string& place) {
  if (!json.is_array())
    throw_failure(cat(place, " is ", shown(json), ", not a list of ranks; correct it"));
  RankPath path;
  for (const nlohmann::json& rank : json) {
    constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
    if (!rank.is_number_integer() || rank.get<double>() < 0.0 ||
        rank.get<double>() > static_cast<double>(most)) {
      throw_failure(
          cat(place, "[", path.size(), "] is ", shown(rank), ", not a sibling's rank; correct it"));
    }
    path.push_back(rank.get<std::int32_t>());
  }
  return path;
}

}  // namespace

JsonObject read_shape_file(const std::filesystem::path& file) {
  return read_json_object(file, largest_file, R"(name one of {"paths": [[0], [0, 0]]})");
}

void write_shape_file(const std::filesystem::path& file, const nlohmann::ordered_json& json) {
  write_file(file, json.dump() + "\n");
}

TreeShape shape_from_json(const nlohmann::json& object, const std::string& file) {
  const auto found = object.find("paths");
  if (found == object.end())
    throw_failure(cat(file, ": \"paths\" is missing; list the tree's nodes under it"));
  if (!found->is_array()) {
    throw_failure(cat(file, ": \"paths\" is ", shown(*found), ", not a list of paths; correct it"));
  }
  std::vector<RankPath> paths;
  for (const nlohmann::json& path : *found) {
    paths.push_back(path_from_json(path, cat(file, ": paths[", paths.size(), "]")));
  }
  try {
    return TreeShape(paths);
  } catch (const Error& error) {
    throw_failure(with_remedy(cat(file, ": ", error.what()), "correct the file"));
  }
}

std::string path_text(const RankPath& path) {
  constexpr std::size_t most_shown = 16;
  std::string text = "[";
  for (std::size_t i = 0; i < path.size(); ++i) {
    if (i > 0) text += ", ";
    if (i == most_shown) {
      text += cat("... ", path.size() - i, " more");
      break;
    }
    text += std::to_string(path[i]);
  }
  return text + "]";
}

}  // namespace coppice
