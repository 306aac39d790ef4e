#include "study/trace.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <initializer_list>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "study/file_header.h"
#include "study/trace_bytes.h"
#include "verify/children.h"

namespace coppice::study {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr FileFormat format = {"trace", "coppice-trace", 1, "coppice study --trace"};
constexpr std::uintmax_t largest_file = std::uintmax_t{1} << 36;

Json columns() {
  // Spelled out as a list: pairs of texts would be taken for an object.
  Json list = Json::array();
  for (const auto& [name, type] :
       std::initializer_list<std::pair<const char*, const char*>>{{"run", "<u4"},
                                                                  {"prompt", "<u4"},
                                                                  {"step", "<u4"},
                                                                  {"node", "<u2"},
                                                                  {"token", "<i4"},
                                                                  {"parent", "<i2"},
                                                                  {"depth", "<u2"},
                                                                  {"rank", "<u2"},
                                                                  {"draft_prob", "<f4"},
                                                                  {"value", "<f4"},
                                                                  {"target_prob", "<f4"},
                                                                  {"fate", "|u1"}}) {
    list.push_back(Json::array({name, type}));
  }
  return list;
}

void put_record(std::string& out, const TraceNode& n) {
  put(out, n.run);
  put(out, n.prompt);
  put(out, n.step);
  put(out, n.node);
  put(out, n.token);
  put(out, n.parent);
  put(out, n.depth);
  put(out, n.rank);
  put(out, n.draft_prob);
  put(out, n.value);
  put(out, n.target_prob);
  put(out, static_cast<std::uint8_t>(n.fate));
}

TraceNode take_record(ByteReader& in) {
  TraceNode n;
  n.run = in.take<std::uint32_t>();
  n.prompt = in.take<std::uint32_t>();
  n.step = in.take<std::uint32_t>();
  n.node = in.take<std::uint16_t>();
  n.token = in.take<std::int32_t>();
  n.parent = in.take<std::int16_t>();
  n.depth = in.take<std::uint16_t>();
  n.rank = in.take<std::uint16_t>();
  n.draft_prob = in.take<float>();
  n.value = in.take<float>();
  n.target_prob = in.take<float>();
  n.fate = static_cast<Fate>(in.take<std::uint8_t>());
  return n;
}

nlohmann::json checked_header(std::string_view text, const fs::path& path) {
  const std::string where = cat("trace ", quote(path.string()));
  const JsonObject header = read_header(format, text, where);
  if (header->value("dtype", nlohmann::json()) != nlohmann::json(columns())) {
    throw_failure(cat(where, ": its columns are not those of version ", format.version,
                      "; read it with the program that wrote it"));
  }
  return *header;
}

}  // namespace

void TraceRun::add(const StepView& step, std::span<const float> target_prob) {
  const TokenTree& tree = step.tree;
  const auto nodes = static_cast<std::size_t>(tree.nodes());
  const auto at = [](auto& values, std::int32_t i) -> auto& {
    return values[static_cast<std::size_t>(i)];
  };
  fate_.assign(nodes, static_cast<std::uint8_t>(Fate::not_reached));
  fate_[0] = static_cast<std::uint8_t>(Fate::root);
  for (const std::int32_t node : step.verdict.path) {
    at(fate_, node) = static_cast<std::uint8_t>(Fate::accepted);
  }
  ChildLinks links;
  links.assign(tree);
  for (std::int32_t node = 0; node < tree.nodes(); ++node) {
    std::int32_t child = links.first_child(node);
    if (child < 0) continue;
    bool judged = at(fate_, node) <= static_cast<std::uint8_t>(Fate::accepted);
    for (; child >= 0; child = links.next_sibling(child)) {
      if (at(fate_, child) == static_cast<std::uint8_t>(Fate::accepted)) {
        judged = false;
      } else if (judged) {
        at(fate_, child) = static_cast<std::uint8_t>(Fate::rejected);
      }
    }
  }
  for (std::size_t i = 0; i < nodes; ++i) {
    put_record(
        bytes_,
        {run_, prompt_, step_, static_cast<std::uint16_t>(i), tree.token[i],
         static_cast<std::int16_t>(tree.parent[i]), static_cast<std::uint16_t>(tree.depth[i]),
         static_cast<std::uint16_t>(tree.rank[i]), tree.draft_prob[i],
         static_cast<float>(tree.value[i]), target_prob[i], static_cast<Fate>(fate_[i])});
  }
  ++step_;
}

TraceWriter::TraceWriter(const fs::path& path, const Json& about, const Keep& keep) : path_(path) {
  Json header = header_of(format);
  header["dtype"] = columns();
  header.update(about);
  const std::string line = header.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  std::error_code ignored;
  if (!fs::exists(path, ignored) || fs::file_size(path, ignored) == 0) {
    write_file(path, line);
    file_ = open_file(path, O_WRONLY);
    end_ = line.size();
  } else {
    const std::string text = read_file(path, "trace", largest_file);
    if (header_line(text) != std::string_view(line).substr(0, line.size() - 1)) {
      throw_usage(cat("trace ", quote(path.string()),
                      ": it holds something else, or the trace of another request; name a file "
                      "that is not there yet"));
    }
    std::string kept = line;
    std::string_view body = std::string_view(text).substr(line.size());
    for (; body.size() >= trace_record_bytes; body.remove_prefix(trace_record_bytes)) {
      ByteReader in(body);
      const TraceNode node = take_record(in);
      if (keep(node.run, node.prompt)) kept += body.substr(0, trace_record_bytes);
    }
    if (kept.size() != text.size()) write_file(path, kept);
    file_ = open_file(path, O_WRONLY);
    end_ = kept.size();
  }
}

void TraceWriter::append(const TraceRun& run) {
  const std::lock_guard lock(mutex_);
  if (::lseek(file_.get(), static_cast<off_t>(end_), SEEK_SET) < 0) {
    throw_write_failure(path_, errno);
  }
  if (!write_all(file_.get(), run.bytes()) || ::fsync(file_.get()) != 0) {
    const int error = errno;
    // What came through is taken back; if even that fails, readers leave the torn record out and
    // continuing cuts the generation off.
    [[maybe_unused]] const int cut = ::ftruncate(file_.get(), static_cast<off_t>(end_));
    throw_write_failure(path_, error);
  }
  end_ += run.bytes().size();
}

Trace read_trace(const fs::path& path) {
  const std::string text = read_file(path, "trace", largest_file);
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
