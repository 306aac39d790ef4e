#include "study/replay/recording.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <span>
#include <string_view>

#include "base/error.h"
#include "base/json_file.h"
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

constexpr std::uintmax_t largest_recording = std::uintmax_t{1} << 36;

/// The payload of one block.
class BlockReader {
 public:
  /// `where` names the file and must outlive this; `place`: the block's byte in it.
  BlockReader(const std::string& where, std::size_t place, std::string_view payload)
      : where_(where), place_(place), bytes_(payload) {}

  void require(bool good, const char* what) const {
    if (good) return;
    throw_failure(cat(where_, " byte ", place_, ": ", what,
                      "; the file is damaged, record anew or copy it again"));
  }
  std::uint32_t number() {
    std::vector<std::uint32_t> one;
    take(1, one);
    return one[0];
  }
  template <typename T>
  void take(std::size_t count, std::vector<T>& values) {
    require(bytes_.size() / sizeof(T) >= count, "the block is shorter than it says");
    values.resize(count);
    if (count > 0) std::memcpy(values.data(), bytes_.data(), count * sizeof(T));
    bytes_.remove_prefix(count * sizeof(T));
  }
  bool at_end() const { return bytes_.empty(); }

 private:
  const std::string& where_;
  std::size_t place_;
  std::string_view bytes_;
};

bool is_prob(float p) { return p >= 0.0f && p <= 1.001f; }  // false for NaN

// Ranks 0, 1, ..., each once, in any places. `seen` is scratch.
void require_order(const BlockReader& in, std::span<const std::uint16_t> ranks,
                   std::vector<char>& seen) {
  seen.assign(ranks.size(), 0);
  std::ptrdiff_t ranked = 0;
  for (const std::uint16_t rank : ranks) {
    if (rank == no_rank) continue;
    in.require(rank < ranks.size() && seen[rank] == 0, "sibling ranks that are no order");
    seen[rank] = 1;
    ++ranked;
  }
  in.require(std::find(seen.begin(), seen.begin() + ranked, 0) == seen.begin() + ranked,
             "sibling ranks with a gap");
}

void check(const BlockReader& in, const RecordedPosition& p, std::int64_t vocab_size) {
  for (const auto* probs : {&p.draft_rest, &p.target_rest, &p.overlap, &p.draft, &p.target}) {
    in.require(std::ranges::all_of(*probs, is_prob), "a probability outside [0, 1]");
  }
  for (const auto* tokens : {&p.token, &p.target_token}) {
    in.require(std::ranges::all_of(*tokens, [&](TokenId t) { return t >= 0 && t < vocab_size; }),
               "a token outside the vocabulary");
  }
  std::vector<char> seen;
  for (std::int32_t node = 0; node < p.nodes(); ++node) {
    const std::size_t first = p.first_entry[node];
    const auto entries = static_cast<std::size_t>(p.entries(node));
    in.require(p.entries(node) <= 3 * most_top_k, "too many entries");
    require_order(in, std::span(p.settled_rank).subspan(first, entries), seen);
    require_order(in, std::span(p.sampled_rank).subspan(first, entries), seen);
    for (std::size_t e = 1; e < entries; ++e) {
      in.require(p.token[first + e - 1] < p.token[first + e], "entries out of order");
    }
  }
}

// Makes what is not in the file. `next`: the text's token at the position.
void link(const BlockReader& in, RecordedPosition& p, TokenId next) {
  std::vector<std::uint16_t> leads_to(p.token.size(), ChildTable::no_node);  // by entry
  for (std::int32_t node = 1; node < p.nodes(); ++node) {
    const auto parent = static_cast<std::int32_t>(p.parent[node]);
    in.require(parent >= 0 && parent < node && p.parent_entry[node] < p.entries(parent),
               "a node whose parent is not there");
    std::uint16_t& place = leads_to[p.first_entry[parent] + p.parent_entry[node]];
    in.require(place == ChildTable::no_node, "two nodes in one place");
    place = static_cast<std::uint16_t>(node);
  }
  // Whatever else is recorded of it, the text's own token leads on to the next position.
  const auto of_root = std::span(p.token).first(p.first_entry[1]);
  const auto followed = std::ranges::find(of_root, next);
  if (followed != of_root.end()) leads_to[followed - of_root.begin()] = 0;
  p.settled = ChildTable(p.first_entry, p.settled_rank, p.draft, leads_to);
  p.sampled = ChildTable(p.first_entry, p.sampled_rank, p.draft, leads_to);
}

RecordedPosition position_from(BlockReader in, std::int64_t vocab_size, TokenId next) {
  RecordedPosition p;
  const std::size_t nodes = in.number();
  in.require(nodes >= 1 && nodes <= most_nodes, "too many nodes or none");
  const std::size_t entries = in.number();
  RecordedPosition::columns(p, nodes, entries,
                            [&](auto& column, std::size_t count) { in.take(count, column); });
  in.require(p.first_entry[0] == 0 && p.first_entry[nodes] == entries &&
                 std::ranges::is_sorted(p.first_entry),
             "nodes whose entries are not there");
  in.require(in.at_end(), "a position of another length than it says");
  check(in, p, vocab_size);
  link(in, p, next);
  return p;
}

RecordingHeader header_from(std::string_view text, const std::string& where) {
  const JsonObject json = parse_json_object(text, where);
  RecordingHeader h;
  try {
    json->get_to(h);
  } catch (const Error& error) {
    throw_failure(cat(where, ": its header: ", error.what(), "; record anew"));
  }
  const auto check = [&](const char* name, std::int64_t number, std::int64_t most) {
    if (number >= 1 && number <= most) return;
    throw_failure(cat(where, ": \"", name, "\" in its header is ", number,
                      "; it must be from 1 to ", most, "; record anew"));
  };
  check("top_k", h.top_k, most_top_k);
  check("nodes", h.nodes, most_nodes);
  check("vocab_size", h.vocab_size, INT32_MAX);
  check("draft_context", h.draft_context, INT32_MAX);
  check("max_new_tokens", h.max_new_tokens, INT32_MAX);
  check("prompts", h.prompts, INT32_MAX);
  return h;
}

// Adds a block to what the blocks before it made.
void add_block(BlockReader in, RecordingBlock kind, Recording& recording) {
  if (kind == RecordingBlock::position) {
    in.require(!recording.texts.empty(), "a position without a text");
    RecordedText& text = recording.texts.back();
    in.require(text.positions.size() < text.tokens.size(), "more positions than tokens");
    text.positions.push_back(
        position_from(in, recording.header.vocab_size, text.tokens[text.positions.size()]));
    return;
  }
  RecordedText text;
  text.prompt = static_cast<std::int32_t>(in.number());
  text.prompt_tokens = static_cast<std::int32_t>(in.number());
  in.take(in.number(), text.tokens);
  in.require(in.at_end(), "a text of another length than it says");
  in.require(text.prompt >= 0 && text.prompt_tokens > 0, "a text without a prompt");
  recording.texts.push_back(std::move(text));
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

Recording read_recording(const std::filesystem::path& path) {
  const std::string where = cat("recording ", quote(path.string()));
  const std::string file = read_file(path, "recording", largest_recording);
  if (!file.starts_with(recording_start)) {
    const bool old = file.starts_with(R"({"format":"coppice-recording")");
    throw_failure(
        cat(where, old ? ": an earlier version of coppice wrote it; record anew"
                       : ": it is no recording; name a file that coppice record wrote, or make one "
                         "with it"));
  }
  std::string_view rest = std::string_view(file).substr(recording_start.size());
  Recording recording;
  bool has_header = false;
  constexpr std::size_t block_header = 12;
  while (rest.size() >= block_header) {
    const std::size_t place = file.size() - rest.size();
    BlockReader start(where, place, rest.substr(0, block_header));
    const auto kind = static_cast<RecordingBlock>(start.number());
    const std::size_t bytes = start.number();
    const std::uint32_t sum = start.number();
    const std::string_view payload = rest.substr(block_header, bytes);
    const BlockReader block(where, place, payload);
    block.require(has_header ? kind == RecordingBlock::text || kind == RecordingBlock::position
                             : kind == RecordingBlock::header,
                  "no block begins here");
    if (payload.size() < bytes) break;
    block.require(recording_checksum(payload) == sum, "the block's checksum does not fit it");
    if (has_header) {
      add_block(block, kind, recording);
    } else {
      recording.header = header_from(payload, where);
      has_header = true;
    }
    rest.remove_prefix(block_header + bytes);
  }
  if (!has_header) throw_failure(cat(where, ": it is cut off within its header; record anew"));
  recording.torn = !rest.empty();
  return recording;
}

}  // namespace coppice::study
