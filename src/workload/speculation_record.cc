#include "workload/speculation_record.h"

#include <algorithm>
#include <random>

#include "base/error.h"
#include "base/remedy.h"
#include "workload/template_file.h"

namespace coppice::workload {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t most_recorded_steps = std::int64_t{1} << 20;

TreeShape recorded_tree(const Json& json, const std::string& place) {
  if (!json.is_array()) {
    throw_failure(cat(place, " is ", shown(json), ", not a list of paths; correct the file"));
  }
  std::vector<RankPath> paths;
  for (const Json& path : json) {
    const std::string at = cat(place, "[", paths.size(), "]");
    if (!path.is_array()) {
      throw_failure(cat(at, " is ", shown(path), ", not a list of ranks; correct the file"));
    }
    RankPath& ranks = paths.emplace_back();
    for (const Json& rank : path) {
      ranks.push_back(static_cast<std::int32_t>(
          whole_number(rank, 0, TreeShape::most_nodes, cat(at, "[", ranks.size(), "]"))));
    }
  }
  try {
    return TreeShape(paths);
  } catch (const Error& error) {
    throw_failure(with_remedy(cat(place, ": ", error.what()), "correct the file"));
  }
}

AcceptanceRecord record_of(const Json& json, const std::string& place, std::int32_t deepest) {
  AcceptanceRecord record;
  const Json& accepted = field(json, "Accept_length", place);
  record.prompt = prompt_of(json, place);
  if (!accepted.is_array() || accepted.empty() || std::ssize(accepted) > most_recorded_steps) {
    throw_failure(cat(place, ": \"Accept_length\" is ", shown(accepted), ", not a list of 1 to ",
                      most_recorded_steps, " accepted lengths; correct the file"));
  }
  for (const Json& length : accepted) {
    record.accepted.push_back(static_cast<std::int32_t>(
        whole_number(length, 0, deepest + 1,
                     cat(place, ": \"Accept_length\"[", record.accepted.size(),
                         "], under a tree of depth ", deepest, ","))));
  }
  return record;
}

}  // namespace

SpeculationFile read_speculation(const std::filesystem::path& file) {
  const JsonObject json = read_template_file(file);
  const std::string where = file.string();
  if (!json->is_object()) {
    throw_failure(
        cat(where, ": holds a JSON ", json->type_name(),
            ", not an object with \"Tree_Structure\" and \"Records\"; a list of templates "
            "is for reasoning"));
  }
  SpeculationFile result;
  result.tree =
      recorded_tree(field(*json, "Tree_Structure", where), where + ": \"Tree_Structure\"");
  if (result.tree.size() < 1) {
    throw_failure(where + ": \"Tree_Structure\" has no nodes; correct the file");
  }
  const Json& records = field(*json, "Records", where);
  if (!records.is_array() || records.empty()) {
    throw_failure(cat(where, ": \"Records\" is ", shown(records),
                      ", not a list of at least one record; correct the file"));
  }
  for (std::size_t i = 0; i < records.size(); ++i) {
    const std::string name = cat("record ", i);
    result.records.push_back(record_of(records[i], cat(where, ": ", name), result.tree.height()));
    result.records.back().name = name;
  }
  return result;
}

std::vector<std::int32_t> steps_of(const AcceptanceRecord& record, std::int64_t tokens,
                                   std::uint64_t seed) {
  if (tokens == 0) return record.accepted;
  std::vector<std::int32_t> steps;
  std::int64_t left = tokens;
  const auto add = [&](std::int32_t accepted) {
    steps.push_back(static_cast<std::int32_t>(std::min<std::int64_t>(accepted, left)));
    left -= steps.back();
  };
  for (const std::int32_t accepted : record.accepted) {
    if (left == 0) break;
    add(accepted);
  }
  const auto [least, most] = std::minmax_element(record.accepted.begin(), record.accepted.end());
  const std::int32_t low = std::max(1, *least), high = std::max(1, *most);
  std::mt19937_64 random(seed);
  while (left > 0) {
    add(low + static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(high - low + 1)));
  }
  return steps;
}

Reads reads_of(const TreeShape& tree, std::int64_t prompt_tokens,
               const std::vector<std::int32_t>& accepted) {
  const std::int64_t rows = tree.size() + 1;
  std::int64_t within = 0;  // what the rows see of the tree
  for (std::int32_t node = 0; node <= tree.size(); ++node) within += tree.depth(node) + 1;
  Reads reads;
  reads.most_branches = rows;
  std::int64_t text = prompt_tokens;
  for (const std::int32_t length : accepted) {
    ++reads.iterations;
    reads.by_tree += text + rows;
    reads.per_query += rows * text + within;
    reads.peak_by_tree = std::max(reads.peak_by_tree, text + rows);
    reads.peak_per_query = std::max(reads.peak_per_query, rows * text + within);
    reads.generated += length;
    text += length;
  }
  return reads;
}

std::vector<std::int32_t> path_of(const TreeShape& tree, std::int32_t length) {
  std::vector<std::int32_t> path;
  if (length <= 0) return path;
  std::int32_t node = 0;
  while (node <= tree.size() && tree.depth(node) < length) ++node;
  if (node > tree.size()) {
    throw_usage(
        cat("speculation: the tree has no path of ", length, " nodes; use up to ", tree.height()));
  }
  for (; node > 0; node = tree.parent(node)) path.push_back(node);
  std::reverse(path.begin(), path.end());
  return path;
}

}  // namespace coppice::workload
