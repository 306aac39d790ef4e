#include "study/grid/trace.h"

#include <exception>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/judged_children.h"
#include "study/files/members.h"
#include "study/observed.h"

namespace coppice::study {
namespace {

namespace fs = std::filesystem;

/// Prints an f32 in as few digits as name it.
using FloatJson = nlohmann::basic_json<nlohmann::ordered_map, std::vector, std::string, bool,
                                       std::int64_t, std::uint64_t, float>;

constexpr std::uintmax_t largest_trace = std::uintmax_t{1} << 36;
constexpr int trace_version = 5;
constexpr std::string_view line_start = "{\"trace\":5,";

/// Collects the names of the texts in whole lines; `refuse` is told of what is none.
TracedNames names_in(std::string_view lines, const auto& refuse) {
  TracedNames names;
  while (!lines.empty()) {
    const std::string_view line = lines.substr(0, lines.find('\n'));
    lines.remove_prefix(line.size() + 1);
    // The names come first; nodes are many.
    const auto nodes = line.find(",\"nodes\":");
    if (!line.starts_with(line_start) || nodes == line.npos) refuse();
    const JsonObject json = parse_json_object(cat(line.substr(0, nodes), "}"), "the trace");
    names.emplace(json->value("cell", ""), json->value("prompt", ""), json->value("run", ""));
  }
  return names;
}

}  // namespace

void TracedText::add(const StepView& step) {
  const TokenTree& tree = step.tree;
  const std::int32_t number = nodes.step.empty() ? 0 : nodes.step.back() + 1;
  std::vector<Fate> fates(static_cast<std::size_t>(tree.nodes()), Fate::not_reached);
  fates[0] = Fate::root;
  for_each_judged(tree, step.kept_path(), step.ends_in_tree(),
                  [&](std::int32_t node, bool accepted) {
                    fates[node] = accepted ? Fate::accepted : Fate::rejected;
                  });
  std::vector<float> target_prob(fates.size(), 1.0f);
  for (std::int32_t node = 0; node < tree.nodes(); ++node) {
    nodes.step.push_back(number);
    nodes.node.push_back(node);
    std::int32_t child = tree.first_child[node];
    if (child < 0) continue;
    const std::span<const float> row = step.target.distribution(node);
    for (; child >= 0; child = tree.next_sibling[child]) {
      target_prob[child] = row[tree.token[child]];
    }
  }
  const auto append = [](auto& column, const auto& values) {
    for (const auto value : values) {
      column.push_back(static_cast<typename std::decay_t<decltype(column)>::value_type>(value));
    }
  };
  append(nodes.token, tree.token);
  append(nodes.parent, tree.parent);
  append(nodes.depth, tree.depth);
  append(nodes.rank, tree.rank);
  append(nodes.draft_prob, tree.draft_prob);
  append(nodes.value, tree.value);
  append(nodes.target_prob, target_prob);
  append(nodes.fate, fates);
  append(nodes.origin, tree.origin);
}

TraceWriter::TraceWriter(const fs::path& path,
                         const std::function<void(const TracedNames&)>& check) {
  const auto refuse = [&](const char* why) {
    throw_usage(cat("trace ", quote(path.string()), ": ", why));
  };
  std::error_code ignored;
  const bool is_new = !fs::exists(path, ignored);
  if (!is_new && !fs::is_regular_file(path, ignored)) refuse("not a regular file; name another");
  if (is_new && check) check({});
  FileHandle file = open_locked(path);
  if (file.get() < 0) refuse("another run is writing it; wait for its end or name another file");
  const std::string before = read_file(path, "trace", largest_trace);
  const auto refuse_other = [&] {
    refuse("it is no trace, or one of another version; name a file that is not there yet");
  };
  if (!line_start.starts_with(std::string_view(before).substr(0, line_start.size()))) {
    refuse_other();
  }
  const std::size_t whole = before.rfind('\n') + 1;
  TracedNames names;
  try {
    names = names_in(std::string_view(before).substr(0, whole), refuse_other);
  } catch (const std::exception&) {
    refuse_other();
  }
  if (check) check(names);
  file_.emplace(path, std::move(file), whole);
}

void TraceWriter::append(const TracedText& text) {
  FloatJson json = {{"trace", trace_version}};
  json.update(FloatJson(text));
  file_->append(json.dump(-1, ' ', false, FloatJson::error_handler_t::replace) + "\n");
  file_->sync();
}

}  // namespace coppice::study
