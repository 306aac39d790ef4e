#include "study/replay/recording.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "study/files/bytes.h"

namespace coppice::study {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// Recordings are not continued.
constexpr const char* when_full = "free some space and start again with another --out";

// What ends a first line that begins with `members`.
std::string line_end(std::string_view members) {
  char digits[16];
  std::snprintf(digits, sizeof digits, "%08x", static_cast<unsigned>(recording_checksum(members)));
  return cat(R"(,"checksum":")", digits, R"("})");
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
  const auto put_column = [&](const auto& column) { put_all(out, column); };
  const auto put_entries = [&] {
    for (std::int32_t node = 0; node < position.nodes(); ++node) {
      put(out, static_cast<std::uint16_t>(position.entries(node)));
    }
  };
  RecordedPosition::columns(position, put_column, put_entries, put_column);
  return out;
}

Json params_json(const SamplingParams& p) {
  return {{"temperature", p.temperature},
          {"top_k", p.top_k},
          {"top_p", p.top_p},
          {"min_p", p.min_p},
          {"repetition_penalty", p.repetition_penalty}};
}

}  // namespace

std::uint32_t recording_checksum(std::string_view bytes) {
  std::uint32_t hash = 0x811c9dc5u;
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x01000193u;
  return hash;
}

bool fits_its_checksum(std::string_view line) {
  const std::size_t length = line_end({}).size();
  return line.size() >= length && line.ends_with(line_end(line.substr(0, line.size() - length)));
}

ChildTable::ChildTable(std::span<const std::uint32_t> first_entry,
                       std::span<const std::uint16_t> rank, std::span<const float> draft,
                       std::span<const std::uint16_t> leads_to) {
  const auto unranked = std::ranges::count(rank, no_rank);
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
  const auto early = std::ranges::count_if(
      texts, [&](const RecordedText& text) { return text.length() < header.max_new_tokens; });
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

RecordingWriter::RecordingWriter(const fs::path& path, const RecordingHeader& header) {
  std::error_code ignored;
  if (fs::exists(fs::symlink_status(path, ignored))) {
    throw_usage(cat("recording ", quote(path.string()),
                    ": the file is there already; remove it or name another"));
  }
  FileHandle handle = open_file(path, O_WRONLY | O_CREAT | O_EXCL, when_full);
  try {
    file_.emplace(path, std::move(handle), 0, when_full);
    file_->append(first_line(to_json(header)));
    file_->sync();
  } catch (const Error&) {
    ::unlink(path.c_str());
    throw;
  }
}

RecordingWriter::~RecordingWriter() {
  if (empty_) ::unlink(file_->path().c_str());
}

void RecordingWriter::append(const RecordedText& text) {
  std::string blocks;
  put_block(blocks, text_block, payload_of(text));
  for (const RecordedPosition& position : text.positions) {
    put_block(blocks, position_block, payload_of(position));
  }
  file_->append(blocks);
  file_->sync();
  empty_ = false;
}

}  // namespace coppice::study
