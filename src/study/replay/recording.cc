#include "study/replay/recording.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>
#include <type_traits>

#include "base/error.h"
#include "base/json_file.h"
#include "kernels/cpu/workers.h"
#include "study/files/bytes.h"
#include "study/files/file_header.h"
#include "study/replay/position.h"

namespace coppice::study {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr FileFormat recording_format = {"recording", "coppice-recording", 1, "coppice record"};
constexpr std::uintmax_t largest_recording = std::uintmax_t{1} << 36;
constexpr std::uint32_t text_block = 1, position_block = 2;

// Starting a thread costs about what reading this much does.
constexpr std::size_t bytes_per_thread = std::size_t{1} << 20;
constexpr std::size_t most_threads = 64;

// Recordings are not continued.
constexpr const char* when_full = "free some space and start again with another --out";

// What ends a first line that begins with `members`.
std::string line_end(std::string_view members) {
  char digits[16];
  std::snprintf(digits, sizeof digits, "%08x", static_cast<unsigned>(recording_checksum(members)));
  return cat(R"(,"checksum":")", digits, R"("})");
}

bool fits_its_checksum(std::string_view line) {
  const std::size_t length = line_end({}).size();
  if (line.size() < length) return false;
  const std::string_view members = line.substr(0, line.size() - length);
  return line.substr(members.size()) == line_end(members);
}

void put_block(std::string& out, std::uint32_t kind, const std::string& payload) {
  put(out, kind);
  put(out, static_cast<std::uint32_t>(payload.size()));
  put(out, recording_checksum(payload));
  out += payload;
}

template <typename T>
void put_all(std::string& out, const std::vector<T>& values) {
  for (const T value : values) put(out, value);
}

std::string payload_of(const RecordedText& text) {
  std::string out;
  put(out, static_cast<std::uint32_t>(text.prompt));
  put(out, static_cast<std::uint32_t>(text.prompt_tokens));
  put(out, static_cast<std::uint32_t>(text.tokens.size()));
  put_all(out, text.tokens);
  return out;
}

std::string payload_of(const RecordedPosition& position) {
  std::string out;
  put(out, static_cast<std::uint32_t>(position.nodes()));
  put_all(out, position.parent);
  put_all(out, position.parent_entry);
  for (std::int32_t node = 0; node < position.nodes(); ++node) {
    put(out, static_cast<std::uint16_t>(position.entries(node)));
  }
  put_all(out, position.target_token);
  put_all(out, position.draft_rest);
  put_all(out, position.target_rest);
  put_all(out, position.overlap);
  put_all(out, position.token);
  put_all(out, position.draft);
  put_all(out, position.target);
  put_all(out, position.settled_rank);
  put_all(out, position.sampled_rank);
  return out;
}

Json params_json(const SamplingParams& p) {
  return {{"temperature", p.temperature},
          {"top_k", p.top_k},
          {"top_p", p.top_p},
          {"min_p", p.min_p},
          {"repetition_penalty", p.repetition_penalty}};
}

// Everything that is wrong with a recording is said with its place.
class RecordingReader {
 public:
  explicit RecordingReader(const fs::path& path)
      : where_(cat("recording ", quote(path.string()))),
        text_(read_file(path, "recording", largest_recording)) {}

  Recording read() {
    take_header(*read_header(recording_format, text_, where_));
    std::size_t at = header_line(text_)->size() + 1;
    constexpr std::size_t block_header = 12;
    std::exception_ptr failure;  // that ends the scan
    try {
      while (text_.size() - at >= block_header) {
        ByteReader in(std::string_view(text_).substr(at, block_header));
        const auto kind = in.take<std::uint32_t>();
        const std::size_t bytes = in.take<std::uint32_t>();
        const auto sum = in.take<std::uint32_t>();
        const bool whole = text_.size() - at - block_header >= bytes;
        const BlockReader block(where_, at,
                                std::string_view(text_).substr(at + block_header, bytes));
        if (kind != text_block && kind != position_block) block.refuse("no block begins here");
        if (!whole) break;
        if (kind == text_block) {
          block.require_checksum(sum);
          add_text(block);
        } else {
          add_position(block, sum);
        }
        at += block_header + bytes;
      }
    } catch (const Error&) {
      failure = std::current_exception();
    }
    read_positions();
    if (failure) std::rethrow_exception(failure);
    recording_.torn = at != text_.size();
    return std::move(recording_);
  }

 private:
  template <typename T>
  T number(const nlohmann::json& json, const char* key, T least, T most) const {
    const auto found = json.find(key);
    constexpr bool any_number = std::is_floating_point_v<T>;
    if (found != json.end() && (any_number ? found->is_number() : found->is_number_integer())) {
      const auto value = found->get<double>();
      if (value >= static_cast<double>(least) && value <= static_cast<double>(most)) {
        return found->get<T>();
      }
    }
    throw_failure(cat(where_, ": \"", key, "\" in its first line is ",
                      found == json.end() ? "missing" : shown(*found), "; it must be from ", least,
                      " to ", most));
  }

  SamplingParams params(const nlohmann::json& json, const char* key) const {
    const auto found = json.find(key);
    if (found == json.end() || !found->is_object()) {
      throw_failure(cat(where_, ": \"", key, "\" is missing in its first line"));
    }
    SamplingParams p;
    p.temperature = number(*found, "temperature", 0.0, 100.0);
    p.top_k = number(*found, "top_k", 0, INT32_MAX);
    p.top_p = number(*found, "top_p", 0.0, 1.0);
    p.min_p = number(*found, "min_p", 0.0, 1.0);
    p.repetition_penalty = number(*found, "repetition_penalty", 0.0, 100.0);
    return p;
  }

  std::string string_in(const nlohmann::json& json, const char* key) const {
    const auto found = json.find(key);
    if (found == json.end() || !found->is_string()) {
      throw_failure(cat(where_, ": \"", key, "\" is missing in its first line"));
    }
    return found->get<std::string>();
  }

  void take_header(const nlohmann::json& json) {
    if (!fits_its_checksum(*header_line(text_))) {
      throw_failure(cat(where_,
                        ": its first line does not fit its checksum, or has none; the file "
                        "is damaged, record anew or copy it again"));
    }
    RecordingHeader& h = recording_.header;
    h.top_k = number(json, "top_k", 1, most_recorded_top_k);
    h.nodes = number(json, "nodes", 1, most_recorded_nodes);
    h.vocab_size = number<std::int64_t>(json, "vocab_size", 1, INT32_MAX);
    h.draft_context = number(json, "draft_context", 1, INT32_MAX);
    h.target_params = params(json, "target_params");
    h.draft_params = params(json, "draft_params");
    h.seed = number<std::uint64_t>(json, "seed", 0, UINT64_MAX);
    h.max_new_tokens = number(json, "max_new_tokens", 1, INT32_MAX);
    h.prompts = number(json, "prompts", 1, INT32_MAX);
    h.target = string_in(json, "target");
    h.draft = string_in(json, "draft");
    if (json.contains("dtype")) h.dtype = string_in(json, "dtype");
    if (json.contains("kv_dtype")) h.kv_dtype = string_in(json, "kv_dtype");
  }

  void add_text(BlockReader in) {
    RecordedText text;
    text.prompt = static_cast<std::int32_t>(in.take<std::uint32_t>());
    text.prompt_tokens = static_cast<std::int32_t>(in.take<std::uint32_t>());
    const auto count = in.take<std::uint32_t>();
    in.take_all(count, text.tokens);
    in.require(in.left() == 0, "a text of another length than it says");
    in.require(text.prompt >= 0 && text.prompt_tokens > 0, "a text without a prompt");
    recording_.texts.push_back(std::move(text));
  }

  void add_position(const BlockReader& block, std::uint32_t sum) {
    const bool expected = !recording_.texts.empty() && recording_.texts.back().positions.size() <
                                                           recording_.texts.back().tokens.size();
    if (!expected) {
      block.require_checksum(sum);
      block.require(!recording_.texts.empty(), "a position without a text");
      block.refuse("more positions than tokens");
    }
    RecordedText& text = recording_.texts.back();
    positions_.push_back({block, sum, recording_.texts.size() - 1, text.positions.size()});
    text.positions.emplace_back();
  }

  // Nearly all of a recording. Of several errors the first in the file is told.
  void read_positions() {
    std::mutex mutex;
    std::size_t first_bad = positions_.size();
    std::exception_ptr failure;
    const auto worth = static_cast<int>(std::min(text_.size() / bytes_per_thread, most_threads));
    cpu::Workers workers(std::clamp(worth, 1, cpu::usable_threads()));
    const auto count = static_cast<std::int64_t>(positions_.size());
    workers.run(count, workers.threads(), [&](std::int64_t item, int) {
      const auto i = static_cast<std::size_t>(item);
      try {
        const PositionBlock& position = positions_[i];
        position.block.require_checksum(position.sum);
        RecordedText& text = recording_.texts[position.text];
        text.positions[position.number] = read_position(
            position.block, recording_.header.vocab_size, text.tokens[position.number]);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (i < first_bad) failure = std::current_exception();
        first_bad = std::min(first_bad, i);
      }
    });
    if (failure) std::rethrow_exception(failure);
  }

  struct PositionBlock {
    BlockReader block;
    std::uint32_t sum;
    std::size_t text, number;
  };

  std::string where_;
  std::string text_;
  Recording recording_;
  std::vector<PositionBlock> positions_;
};

}  // namespace

ChildTable::ChildTable(std::span<const std::uint32_t> first_entry,
                       std::span<const std::uint16_t> rank, std::span<const float> draft,
                       std::span<const std::uint16_t> leads_to) {
  const auto unranked = std::count(rank.begin(), rank.end(), no_rank);
  children_.resize(rank.size() - static_cast<std::size_t>(unranked));
  first_.reserve(first_entry.size());
  first_.push_back(0);
  for (std::size_t node = 0; node + 1 < first_entry.size(); ++node) {
    const std::uint32_t first = first_.back();
    std::uint32_t count = 0;
    for (std::size_t e = first_entry[node]; e < first_entry[node + 1]; ++e) {
      if (rank[e] == no_rank) continue;
      const auto entry = static_cast<std::uint16_t>(e - first_entry[node]);
      children_[first + rank[e]] = {draft[e], entry, leads_to[e]};
      ++count;
    }
    first_.push_back(first + count);
  }
}

std::int32_t Recording::widest() const {
  std::int32_t widest = 0;
  for (const RecordedText& text : texts) {
    for (const RecordedPosition& position : text.positions) {
      for (std::int32_t node = 0; node < position.nodes(); ++node) {
        widest = std::max(widest, position.entries(node));
      }
    }
  }
  return widest;
}

std::string Recording::missing() const {
  const auto early = std::count_if(texts.begin(), texts.end(), [&](const RecordedText& text) {
    return text.length() < header.max_new_tokens;
  });
  if (early == 0 && texts.size() >= static_cast<std::size_t>(header.prompts)) return {};
  return cat("holds ", texts.size(), " of ", header.prompts, " texts",
             early > 0 ? cat(", ", early, " of them ended early") : std::string());
}

std::string first_line(const Json& header) {
  std::string line = header.dump(-1, ' ', false, Json::error_handler_t::replace);
  line.pop_back();  // the brace that line_end() closes
  return line + line_end(line) + "\n";
}

Json to_json(const RecordingHeader& h) {
  Json json = header_of(recording_format);
  json.update({{"top_k", h.top_k},
               {"nodes", h.nodes},
               {"vocab_size", h.vocab_size},
               {"draft_context", h.draft_context},
               {"target_params", params_json(h.target_params)},
               {"draft_params", params_json(h.draft_params)},
               {"seed", h.seed},
               {"max_new_tokens", h.max_new_tokens},
               {"prompts", h.prompts},
               {"target", h.target},
               {"draft", h.draft},
               {"dtype", h.dtype},
               {"kv_dtype", h.kv_dtype}});
  return json;
}

RecordingWriter::RecordingWriter(const fs::path& path, const RecordingHeader& header)
    : path_(path) {
  std::error_code ignored;
  if (fs::exists(fs::symlink_status(path, ignored))) {
    throw_usage(cat("recording ", quote(path.string()),
                    ": the file is there already; remove it or name another"));
  }
  const std::string line = first_line(to_json(header));
  file_ = open_file(path, O_WRONLY | O_CREAT | O_EXCL, when_full);
  if (!write_all(file_.get(), line) || ::fsync(file_.get()) != 0) {
    const int error = errno;
    ::unlink(path_.c_str());
    throw_write_failure(path_, error, when_full);
  }
  end_ = line.size();
}

RecordingWriter::~RecordingWriter() {
  if (empty_) ::unlink(path_.c_str());
}

void RecordingWriter::append(const RecordedText& text) {
  std::string blocks;
  put_block(blocks, text_block, payload_of(text));
  for (const RecordedPosition& position : text.positions) {
    put_block(blocks, position_block, payload_of(position));
  }
  if (!write_all(file_.get(), blocks) || ::fsync(file_.get()) != 0) {
    const int error = errno;
    // If taking back fails too, readers leave the torn block out.
    [[maybe_unused]] const int cut = ::ftruncate(file_.get(), static_cast<off_t>(end_));
    throw_write_failure(path_, error, when_full);
  }
  end_ += blocks.size();
  empty_ = false;
}

Recording read_recording(const fs::path& path) { return RecordingReader(path).read(); }

}  // namespace coppice::study
