#include "study/grid/trace.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "study/files/members.h"
#include "verify/children.h"

namespace coppice::study {
namespace {

namespace fs = std::filesystem;

/// Prints an f32 in as few digits as name it.
using FloatJson = nlohmann::basic_json<nlohmann::ordered_map, std::vector, std::string, bool,
                                       std::int64_t, std::uint64_t, float>;

constexpr std::uintmax_t largest_trace = std::uintmax_t{1} << 36;
constexpr int trace_version = 3;
constexpr std::string_view line_start = "{\"trace\":3,";

/// What became of every node of a judged tree.
std::vector<Fate> fates_of(const TokenTree& tree, std::span<const std::int32_t> path) {
  std::vector<Fate> fates(static_cast<std::size_t>(tree.nodes()), Fate::not_reached);
  fates[0] = Fate::root;
  for (const std::int32_t node : path) fates[node] = Fate::accepted;
  ChildLinks links;
  links.assign(tree);
  for (std::int32_t node = 0; node < tree.nodes(); ++node) {
    bool judged = fates[node] <= Fate::accepted;
    for (std::int32_t child = links.first_child(node); child >= 0;
         child = links.next_sibling(child)) {
      if (fates[child] == Fate::accepted) {
        judged = false;
      } else if (judged) {
        fates[child] = Fate::rejected;
      }
    }
  }
  return fates;
}

}  // namespace

void TracedText::add(const StepView& step, std::span<const float> target_prob) {
  const TokenTree& tree = step.tree;
  const std::int32_t number = nodes.step.empty() ? 0 : nodes.step.back() + 1;
  const auto append = [](auto& column, const auto& values) {
    for (const auto value : values) {
      column.push_back(static_cast<typename std::decay_t<decltype(column)>::value_type>(value));
    }
  };
  for (std::int32_t i = 0; i < tree.nodes(); ++i) {
    nodes.step.push_back(number);
    nodes.node.push_back(i);
  }
  append(nodes.token, tree.token);
  append(nodes.parent, tree.parent);
  append(nodes.depth, tree.depth);
  append(nodes.rank, tree.rank);
  append(nodes.draft_prob, tree.draft_prob);
  append(nodes.value, tree.value);
  append(nodes.target_prob, target_prob);
  append(nodes.fate, fates_of(tree, step.verdict.path));
}

TraceWriter::TraceWriter(const fs::path& path) {
  const auto refuse = [&](const char* why) {
    throw_usage(cat("trace ", quote(path.string()), ": ", why));
  };
  std::error_code ignored;
  if (fs::exists(path, ignored) && !fs::is_regular_file(path, ignored)) {
    refuse("not a regular file; name another");
  }
  FileHandle file = open_locked(path);
  if (file.get() < 0) refuse("another run is writing it; wait for its end or name another file");
  const std::string before = read_file(path, "trace", largest_trace);
  if (!line_start.starts_with(std::string_view(before).substr(0, line_start.size()))) {
    refuse("it is no trace, or one of an earlier version; name a file that is not there yet");
  }
  file_.emplace(path, std::move(file), before.rfind('\n') + 1);
}

void TraceWriter::append(const TracedText& text) {
  FloatJson json = {{"trace", trace_version}};
  json.update(FloatJson(text));
  const std::string line = json.dump(-1, ' ', false, FloatJson::error_handler_t::replace);
  const std::lock_guard lock(mutex_);
  file_->append(line + "\n");
  file_->sync();
}

}  // namespace coppice::study
