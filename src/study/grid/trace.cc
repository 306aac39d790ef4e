#include "study/grid/trace.h"

#include <algorithm>
#include <set>
#include <system_error>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "study/files/appended_file.h"
#include "study/files/bytes.h"
#include "study/files/file_header.h"
#include "verify/children.h"

namespace coppice::study {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr FileFormat trace_format = {"trace", "coppice-trace", 2, "coppice study --trace"};
constexpr std::uintmax_t largest_trace = std::uintmax_t{1} << 36;

// numpy's names of types.
const char* type_of(std::uint32_t) { return "<u4"; }
const char* type_of(std::uint16_t) { return "<u2"; }
const char* type_of(std::int32_t) { return "<i4"; }
const char* type_of(std::int16_t) { return "<i2"; }
const char* type_of(float) { return "<f4"; }
const char* type_of(Fate) { return "|u1"; }

Json columns() {
  Json list = Json::array();
  const TraceNode node;
  TraceNode::members(node, [&](const char* name, const auto& member) {
    // Spelled out as a list: pairs of texts would be taken for an object.
    list.push_back(Json::array({name, type_of(member)}));
  });
  return list;
}

void put_record(std::string& out, const TraceNode& node) {
  TraceNode::members(node, [&](const char*, const auto& member) { put(out, member); });
}

TraceNode take_record(ByteReader& in) {
  TraceNode node;
  TraceNode::members(node, [&](const char*, auto& member) {
    member = in.take<std::remove_reference_t<decltype(member)>>();
  });
  return node;
}

/// A list of texts, no one twice.
bool is_list_of_names(const nlohmann::json& header, const char* list) {
  const nlohmann::json names = header.value(list, nlohmann::json());
  std::set<std::string> seen;
  return names.is_array() && std::ranges::all_of(names, [&](const auto& name) {
           return name.is_string() && seen.insert(name.template get<std::string>()).second;
         });
}

nlohmann::json checked_header(std::string_view text, const fs::path& path) {
  const std::string where = cat("trace ", quote(path.string()));
  const JsonObject header = read_header(trace_format, text, where);
  if (header->value("dtype", nlohmann::json()) != nlohmann::json(columns())) {
    throw_failure(cat(where, ": its columns are not those of version ", trace_format.version,
                      "; read it with the program that wrote it"));
  }
  for (const char* list : {"runs", "prompts"}) {
    if (is_list_of_names(*header, list)) continue;
    throw_failure(cat(where, ": its header has no list of ", list, "; name a file that ",
                      trace_format.writer, " wrote"));
  }
  return *header;
}

/// The names of a header's list and those of `names` that it lacks; `numbers` gets the place of
/// each.
std::vector<std::string> merged(const nlohmann::json& header, const char* list,
                                const std::vector<std::string>& names,
                                std::map<std::string, std::uint32_t>& numbers) {
  std::vector<std::string> all;
  const auto add = [&](const std::string& name) {
    if (numbers.emplace(name, static_cast<std::uint32_t>(all.size())).second) all.push_back(name);
  };
  for (const auto& name : header.at(list)) add(name.get<std::string>());
  for (const std::string& name : names) add(name);
  return all;
}

}  // namespace

void TraceRun::add(const StepView& step, std::span<const float> target_prob) {
  const TokenTree& tree = step.tree;
  const auto nodes = static_cast<std::size_t>(tree.nodes());
  fate_.assign(nodes, Fate::not_reached);
  const auto fate = [&](std::int32_t node) -> Fate& { return fate_[node]; };
  fate(0) = Fate::root;
  for (const std::int32_t node : step.verdict.path) fate(node) = Fate::accepted;
  ChildLinks links;
  links.assign(tree);
  for (std::int32_t node = 0; node < tree.nodes(); ++node) {
    bool judged = fate(node) <= Fate::accepted;
    for (std::int32_t child = links.first_child(node); child >= 0;
         child = links.next_sibling(child)) {
      if (fate(child) == Fate::accepted) {
        judged = false;
      } else if (judged) {
        fate(child) = Fate::rejected;
      }
    }
  }
  for (std::size_t i = 0; i < nodes; ++i) {
    put_record(bytes_,
               {run_, prompt_, step_, static_cast<std::uint16_t>(i), tree.token[i],
                static_cast<std::int16_t>(tree.parent[i]),
                static_cast<std::uint16_t>(tree.depth[i]), static_cast<std::uint16_t>(tree.rank[i]),
                tree.draft_prob[i], static_cast<float>(tree.value[i]), target_prob[i], fate_[i]});
  }
  ++step_;
}

FileHandle TraceWriter::hold() const {
  FileHandle file = open_locked(path_);
  if (file.get() >= 0) return file;
  throw_usage(cat("trace ", quote(path_.string()),
                  ": another run is writing it; wait for its end or name another file"));
}

TraceWriter::TraceWriter(const fs::path& path, const std::vector<std::string>& runs,
                         const std::vector<std::string>& prompts, const Keep& keep)
    : path_(path) {
  std::error_code ignored;
  if (fs::exists(path, ignored) && !fs::is_regular_file(path, ignored)) {
    throw_usage(cat("trace ", quote(path.string()), ": not a regular file; name another"));
  }
  FileHandle file = hold();
  const std::string before = read_file(path, "trace", largest_trace);
  nlohmann::json old = {{"runs", nlohmann::json::array()}, {"prompts", nlohmann::json::array()}};
  std::string_view body;
  if (!before.empty()) {
    try {
      old = checked_header(before, path);
    } catch (const Error& error) {
      throw_usage(cat(error.what(), "; or name a file that is not there yet"));
    }
    body = std::string_view(before).substr(before.find('\n') + 1);
  }
  const std::vector<std::string> all_runs = merged(old, "runs", runs, runs_);
  const std::vector<std::string> all_prompts = merged(old, "prompts", prompts, prompts_);
  Json header = header_of(trace_format);
  header["dtype"] = columns();
  header["runs"] = all_runs;
  header["prompts"] = all_prompts;
  std::string kept = header.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  for (; body.size() >= trace_record_bytes; body.remove_prefix(trace_record_bytes)) {
    ByteReader in(body);
    const TraceNode node = take_record(in);
    if (node.run < all_runs.size() && node.prompt < all_prompts.size() &&
        keep(all_runs[node.run], all_prompts[node.prompt])) {
      kept += body.substr(0, trace_record_bytes);
    }
  }
  if (kept != before) {
    write_file(path, kept, resumes_when_free);
    file = hold();  // the file that now has the name
  }
  file_.emplace(path, std::move(file), kept.size());
}

void TraceWriter::append(const TraceRun& run) {
  const std::lock_guard lock(mutex_);
  file_->append(run.bytes());
  file_->sync();
}

Trace read_trace(const fs::path& path) {
  const std::string text = read_file(path, "trace", largest_trace);
  Trace trace;
  trace.header = checked_header(text, path);
  const std::string_view body = std::string_view(text).substr(text.find('\n') + 1);
  ByteReader in(body);
  trace.nodes.reserve(body.size() / trace_record_bytes);
  while (in.left() >= trace_record_bytes) trace.nodes.push_back(take_record(in));
  trace.torn = in.left() > 0;
  return trace;
}

}  // namespace coppice::study
