#include "study/replay/recording.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "study/files/members.h"

namespace coppice::study {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// Recordings are not continued.
constexpr const char* when_full = "free some space and start again with another --out";

static_assert(std::endian::native == std::endian::little, "files are little-endian");

void put(std::string& out, const auto* values, std::size_t count) {
  out.append(reinterpret_cast<const char*>(values), count * sizeof *values);
}

void put(std::string& out, std::size_t number) {
  const auto value = static_cast<std::uint32_t>(number);
  put(out, &value, 1);
}

std::string payload_of(const RecordedText& text) {
  std::string out;
  put(out, static_cast<std::size_t>(text.prompt));
  put(out, static_cast<std::size_t>(text.prompt_tokens));
  put(out, text.tokens.size());
  put(out, text.tokens.data(), text.tokens.size());
  return out;
}

std::string payload_of(const RecordedPosition& position) {
  std::string out;
  put(out, position.parent.size());
  put(out, position.token.size());
  RecordedPosition::columns(
      position, position.parent.size(), position.token.size(),
      [&](const auto& column, std::size_t count) { put(out, column.data(), count); });
  return out;
}

}  // namespace

std::uint32_t recording_checksum(std::string_view bytes) {
  std::uint32_t hash = 0x811c9dc5u;
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x01000193u;
  return hash;
}

void put_block(std::string& out, RecordingBlock kind, std::string_view payload) {
  put(out, static_cast<std::size_t>(kind));
  put(out, payload.size());
  put(out, recording_checksum(payload));
  out += payload;
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

RecordingWriter::RecordingWriter(const fs::path& path, const RecordingHeader& header) {
  std::error_code ignored;
  if (fs::exists(fs::symlink_status(path, ignored))) {
    throw_usage(cat("recording ", quote(path.string()),
                    ": the file is there already; remove it or name another"));
  }
  FileHandle handle = open_file(path, O_WRONLY | O_CREAT | O_EXCL, when_full);
  try {
    file_.emplace(path, std::move(handle), 0, when_full);
    std::string start(recording_start);
    put_block(start, RecordingBlock::header,
              Json(header).dump(-1, ' ', false, Json::error_handler_t::replace));
    file_->append(start);
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
  put_block(blocks, RecordingBlock::text, payload_of(text));
  for (const RecordedPosition& position : text.positions) {
    put_block(blocks, RecordingBlock::position, payload_of(position));
  }
  file_->append(blocks);
  file_->sync();
  empty_ = false;
}

}  // namespace coppice::study
