// Templates of multi-step reasoning.
#include <map>
#include <utility>

#include "base/error.h"
#include "workload/template_file.h"
#include "workload/tree_template.h"

namespace coppice::workload {
namespace {

using Json = nlohmann::json;

/// A node as it stands in the file.
struct Record {
  std::int64_t tokens, begin, end;
  std::vector<std::int64_t> children;
  std::int64_t parent = -1;
};
using Records = std::map<std::int64_t, Record>;

std::int64_t id_of(const std::string& key, const std::string& place) {
  std::int64_t id = 0;
  for (const char digit : key) {
    if (digit < '0' || digit > '9' || id > most_tokens) {
      throw_failure(cat(place, ": node ", quote(key), ": a node's key is its number"));
    }
    id = 10 * id + (digit - '0');
  }
  if (key.empty()) throw_failure(cat(place, ": a node's key is empty; it is the node's number"));
  return id;
}

Record record_of(const Json& json, std::int64_t id, const std::string& place) {
  Record record{};
  if (whole_number(field(json, "id", place), 0, most_tokens, cat(place, ": \"id\"")) != id) {
    throw_failure(cat(place, ": its \"id\" is ", json["id"].dump(),
                      "; the two must agree, correct the file"));
  }
  record.tokens =
      whole_number(field(json, "value", place), 0, most_tokens, cat(place, ": \"value\""));
  record.begin = whole_number(field(json, "start", place), -most_tokens, most_tokens,
                              cat(place, ": \"start\""));
  record.end =
      whole_number(field(json, "end", place), -most_tokens, most_tokens, cat(place, ": \"end\""));
  const Json& children = field(json, "children", place);
  if (!children.is_array()) {
    throw_failure(cat(place, ": \"children\" is ", shown(children),
                      ", not a list of nodes; correct the file"));
  }
  for (const Json& child : children) {
    record.children.push_back(whole_number(child, 0, most_tokens, cat(place, ": a child")));
  }
  return record;
}

// What a node says of itself agrees. A prompt is there before iteration 1, however it says so.
void check_times(const Records& records, std::int64_t root, const std::string& place) {
  for (const auto& [id, record] : records) {
    const std::string at = cat(place, ": node ", id);
    if (id == root) {
      if (record.tokens < 1) throw_failure(cat(at, ": the prompt has no tokens"));
      if (record.end > 0) {
        throw_failure(cat(at, ": the prompt ends in iteration ", record.end,
                          ", not in 0; it is there before iteration 1, so that its \"end\" is 0"));
      }
      continue;
    }
    if (record.end - record.begin + 1 != record.tokens) {
      throw_failure(cat(at, ": \"value\" says ", record.tokens, " tokens, \"start\" to \"end\" ",
                        record.end - record.begin + 1, "; a node gets one in each iteration"));
    }
    const std::int64_t after = record.parent == root ? 0 : records.at(record.parent).end;
    if (record.begin <= after) {
      throw_failure(cat(at, ": it starts in iteration ", record.begin, ", before node ",
                        record.parent, " ends in ", after));
    }
  }
}

// Gives every record its parent and returns the root.
std::int64_t link(Records& records, const std::string& place) {
  for (auto& [id, record] : records) {
    for (const std::int64_t child : record.children) {
      const std::string at = cat(place, ": node ", id);
      const auto found = records.find(child);
      if (found == records.end()) {
        throw_failure(cat(at, ": its child ", child,
                          " is no node of the template; list it, or leave it out of \"children\""));
      }
      if (found->second.parent >= 0) {
        throw_failure(cat(at, ": its child ", child, " is node ", found->second.parent,
                          "'s already; a node has one parent"));
      }
      found->second.parent = id;
    }
  }
  std::int64_t root = -1;
  for (const auto& [id, record] : records) {
    if (record.parent >= 0) continue;
    if (root >= 0) {
      throw_failure(
          cat(place, ": nodes ", root, " and ", id, " have no parent; one is the prompt"));
    }
    root = id;
  }
  if (root < 0) throw_failure(cat(place, ": every node has a parent; one must be the prompt"));
  return root;
}

TreeTemplate tree_of(const Json& json, const std::string& place) {
  TreeTemplate tree;
  tree.prompt = prompt_of(json, place);
  const Json& data = field(json, "data", place);
  if (data.size() > most_nodes) {
    throw_failure(
        cat(place, ": ", data.size(), " nodes; at most ", most_nodes, " can be replayed"));
  }
  Records records;
  std::int64_t tokens = 0;
  for (const auto& [key, value] : data.items()) {
    const std::int64_t id = id_of(key, place);
    Record record = record_of(value, id, cat(place, ": node ", id));
    tokens += record.tokens;
    if (tokens > most_tokens) {
      throw_failure(cat(place, ": more than ", most_tokens, " tokens can not be replayed"));
    }
    if (!records.emplace(id, std::move(record)).second) {
      throw_failure(cat(place, ": node ", id, " is there twice"));
    }
  }
  const std::int64_t root = link(records, place);
  check_times(records, root, place);
  if (tokens == records.at(root).tokens) {
    throw_failure(cat(place, ": no node but the prompt has tokens; there is nothing to write"));
  }
  // Breadth first, so that parents come before children.
  std::vector<std::pair<std::int64_t, std::int32_t>> order = {{root, -1}};
  for (std::size_t n = 0; n < order.size(); ++n) {
    const auto [id, parent] = order[n];
    const Record& record = records.at(id);
    tree.nodes.push_back({parent, record.tokens, record.begin, record.end});
    for (const std::int64_t child : record.children) {
      order.emplace_back(child, static_cast<std::int32_t>(n));
    }
  }
  tree.nodes.front().begin = 1 - tree.nodes.front().tokens;
  tree.nodes.front().end = 0;
  if (order.size() < records.size()) {
    throw_failure(cat(place, ": ", records.size() - order.size(),
                      " nodes can not be reached from node ", root));
  }
  return tree;
}

}  // namespace

ReasoningFile read_reasoning(const std::filesystem::path& file) {
  const JsonObject json = read_template_file(file);
  if (!json->is_array()) {
    throw_failure(
        cat(file.string(), ": holds a JSON ", json->type_name(),
            ", not a list of templates; a record of accepted lengths is for speculation"));
  }
  ReasoningFile result;
  for (std::size_t i = 0; i < json->size(); ++i) {
    const Json& item = (*json)[i];
    const std::string name = cat("template ", i), place = cat(file.string(), ": ", name);
    const Json& data = field(item, "data", place);
    if (!data.is_object()) {
      throw_failure(
          cat(place, ": \"data\" is ", shown(data), ", not an object of nodes; correct the file"));
    }
    const auto flag = item.find("incompleted");
    if (flag != item.end() && !flag->is_boolean()) {
      throw_failure(cat(place, ": \"incompleted\" is ", shown(*flag),
                        ", not true or false; correct the file"));
    }
    if ((flag != item.end() && flag->get<bool>()) || data.size() < 2) {
      ++result.incomplete;
      continue;
    }
    result.trees.push_back(tree_of(item, place));
    result.trees.back().name = name;
  }
  return result;
}

}  // namespace coppice::workload
