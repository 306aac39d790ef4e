#include "study/replay/recording.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/fingerprint.h"
#include "base/json_file.h"
#include "base/remedy.h"
#include "study/files/members.h"

namespace coppice::study {
namespace {

using Json = nlohmann::ordered_json;

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
  put(out, text.prompt_ids.size());
  put(out, text.prompt_ids.data(), text.prompt_ids.size());
  put(out, text.tokens.size());
  put(out, text.tokens.data(), text.tokens.size());
  put(out, text.positions.size());
  for (const RecordedPosition& position : text.positions) {
    put(out, position.parent.size());
    put(out, position.token.size());
    RecordedPosition::columns(
        position, position.parent.size(), position.token.size(), true,
        [&](const auto& column, std::size_t count) { put(out, column.data(), count); });
  }
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
    return one.front();
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
  in.require(std::ranges::all_of(p.origin, [](Origin o) { return o <= Origin::lookup; }),
             "an origin that there is not");
  std::vector<char> seen;
  for (std::int32_t node = 0; node < p.nodes(); ++node) {
    const std::size_t first = p.first_entry[node];
    const auto entries = static_cast<std::size_t>(p.entries(node));
    in.require(p.entries(node) <= 4 * most_top_k, "too many entries");
    require_order(in, std::span(p.settled_rank).subspan(first, entries), seen);
    require_order(in, std::span(p.sampled_rank).subspan(first, entries), seen);
    for (std::size_t e = 1; e < entries; ++e) {
      in.require(p.token[first + e - 1] < p.token[first + e], "entries out of order");
    }
  }
}

// Makes what is not in the file. `next`: the text's token at the position.
void link(const BlockReader& in, RecordedPosition& p, TokenId next) {
  p.leads_to.assign(p.token.size(), ChildTable::no_node);
  for (std::int32_t node = 1; node < p.nodes(); ++node) {
    const auto parent = static_cast<std::int32_t>(p.parent[node]);
    in.require(parent >= 0 && parent < node && p.parent_entry[node] < p.entries(parent),
               "a node whose parent is not there");
    std::uint16_t& place = p.leads_to[p.first_entry[parent] + p.parent_entry[node]];
    in.require(place == ChildTable::no_node, "two nodes in one place");
    place = static_cast<std::uint16_t>(node);
  }
  // Whatever else is recorded of it, the text's own token leads on to the next position.
  const auto of_root = std::span(p.token).first(p.first_entry[1]);
  const auto followed = std::ranges::find(of_root, next);
  if (followed != of_root.end()) p.leads_to[followed - of_root.begin()] = 0;
  p.settled = ChildTable(p.first_entry, p.settled_rank, p.draft, p.leads_to);
  p.sampled = ChildTable(p.first_entry, p.sampled_rank, p.draft, p.leads_to);
}

RecordedPosition position_from(BlockReader& in, std::int64_t vocab_size, bool has_origins,
                               TokenId next) {
  RecordedPosition p;
  const std::size_t nodes = in.number();
  in.require(nodes >= 1 && nodes <= most_nodes, "too many nodes or none");
  const std::size_t entries = in.number();
  RecordedPosition::columns(p, nodes, entries, has_origins,
                            [&](auto& column, std::size_t count) { in.take(count, column); });
  p.origin.resize(nodes, Origin::model);
  in.require(p.first_entry[0] == 0 && p.first_entry[nodes] == entries &&
                 std::ranges::is_sorted(p.first_entry),
             "nodes whose entries are not there");
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
    throw_failure(with_remedy(cat(where, ": its header: ", error.what()), "record anew"));
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

RecordedText text_from(BlockReader in, std::int64_t vocab_size, bool has_origins) {
  RecordedText text;
  text.prompt = static_cast<std::int32_t>(in.number());
  const std::uint32_t prompt_tokens = in.number();
  text.prompt_tokens = static_cast<std::int32_t>(prompt_tokens);
  if (has_origins) in.take(prompt_tokens, text.prompt_ids);
  in.take(in.number(), text.tokens);
  in.require(text.prompt >= 0 && text.prompt_tokens > 0, "a text without a prompt");
  const std::size_t positions = in.number();
  in.require(positions <= text.tokens.size(), "more positions than tokens");
  for (std::size_t p = 0; p < positions; ++p) {
    text.positions.push_back(position_from(in, vocab_size, has_origins, text.tokens[p]));
  }
  in.require(in.at_end(), "a text of another length than it says");
  return text;
}

/// Reads a file's bytes, which `where` names.
Recording recording_from(std::string_view file, const std::string& where) {
  Recording recording;
  constexpr std::size_t numbers = 3 * sizeof(std::uint64_t);
  const bool has_origins = !file.starts_with(recording_start_3);
  std::string_view rest = file;
  rest.remove_prefix(recording_start.size());
  bool has_header = false;
  while (rest.size() >= numbers) {
    std::array<std::uint64_t, 3> start{};  // bytes, checksum of these, of the payload
    std::memcpy(start.data(), rest.data(), numbers);
    const std::size_t place = file.size() - rest.size();
    const std::string_view payload = rest.substr(numbers, start[0]);
    const BlockReader block(where, place, payload);
    block.require(fnv1a(rest.substr(0, sizeof start[0])) == start[1], "no block begins here");
    if (payload.size() < start[0]) break;
    block.require(fnv1a(payload) == start[2], "the block's checksum does not fit it");
    if (has_header) {
      recording.texts.push_back(text_from(block, recording.header.vocab_size, has_origins));
    } else {
      recording.header = header_from(payload, where);
      has_header = true;
    }
    rest.remove_prefix(numbers + payload.size());
  }
  if (!has_header) throw_failure(cat(where, ": it is cut off within its header; record anew"));
  recording.whole_bytes = file.size() - rest.size();
  recording.torn = !rest.empty();
  return recording;
}

std::string name_of_recording(const std::filesystem::path& path) {
  return cat("recording ", quote(path.string()));
}

}  // namespace

std::string recording_block(std::string_view payload) {
  std::string out;
  const std::uint64_t bytes = payload.size();
  put(out, &bytes, 1);
  for (const std::uint64_t sum : {fnv1a(out), fnv1a(payload)}) put(out, &sum, 1);
  return out.append(payload);
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

RecordingWriter::RecordingWriter(const std::filesystem::path& path, const RecordingHeader& header) {
  const auto refuse = [&](const std::string& why) {
    throw_usage(cat(name_of_recording(path), why));
  };
  FileHandle handle = open_locked(path);
  if (handle.get() < 0) refuse(": another run is writing it; wait for its end or name another");
  const Json wanted = header;
  const std::string start =
      cat(recording_start,
          recording_block(wanted.dump(-1, ' ', false, Json::error_handler_t::replace)));
  const std::string before = read_file(path, "recording", largest_recording);
  if (start.starts_with(before)) {  // new, or killed as it began
    file_.emplace(path, std::move(handle), 0);
    file_->append(start);
    file_->sync();
    return;
  }
  if (!before.starts_with(recording_start)) {
    refuse(": the file is there already, and is no recording of this version; name another");
  }
  const Recording there = recording_from(before, name_of_recording(path));
  const Json old = there.header;
  for (const auto& [name, value] : wanted.items()) {
    if (old[name] == value) continue;
    refuse(cat(" is there already, of another request (", name, ": it was ", shown(old[name]),
               ", now ", shown(value), "); name another, or record with what it was begun with"));
  }
  texts_ = there.texts.size();
  file_.emplace(path, std::move(handle), there.whole_bytes);
}

void RecordingWriter::append(const RecordedText& text) {
  file_->append(recording_block(payload_of(text)));
  file_->sync();
  ++texts_;
}

Recording read_recording(const std::filesystem::path& path) {
  const std::string where = name_of_recording(path);
  const std::string file = read_file(path, "recording", largest_recording);
  if (file.starts_with(recording_start) || file.starts_with(recording_start_3)) {
    return recording_from(file, where);
  }
  const bool old = file.starts_with("coppice-recording ") ||
                   file.starts_with(R"({"format":"coppice-recording")");
  throw_failure(
      cat(where, old ? ": another version of coppice wrote it; record anew"
                     : ": it is no recording; name a file that coppice record wrote, or make one "
                       "with it"));
}

}  // namespace coppice::study
