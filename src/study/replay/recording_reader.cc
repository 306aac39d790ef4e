// Reads recordings: everything that is wrong with one is said with its place.
#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <type_traits>

#include "base/error.h"
#include "base/json_file.h"
#include "study/files/bytes.h"
#include "study/files/file_header.h"
#include "study/replay/recording.h"

namespace coppice::study {
namespace {

constexpr std::uintmax_t largest_recording = std::uintmax_t{1} << 36;
constexpr std::int32_t most_top_k = 1024, most_nodes = 1025;

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
    require(bytes_.size() >= sizeof(std::uint32_t), "the block is shorter than it says");
    ByteReader in(bytes_);
    bytes_.remove_prefix(sizeof(std::uint32_t));
    return in.take<std::uint32_t>();
  }
  template <typename T>
  void take(std::size_t count, std::vector<T>& values) {
    require(bytes_.size() / sizeof(T) >= count, "the block is shorter than it says");
    values.resize(count);
    if constexpr (std::endian::native == std::endian::little) {
      if (count > 0) std::memcpy(values.data(), bytes_.data(), count * sizeof(T));
    } else {
      ByteReader in(bytes_);
      for (T& value : values) value = in.take<T>();
    }
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
  std::vector<std::uint16_t> entries;
  RecordedPosition::columns(
      p, [&](auto& column) { in.take(nodes, column); },
      [&] {
        in.take(nodes, entries);
        p.first_entry.assign(1, 0);
        for (const std::uint16_t count : entries) {
          in.require(count <= 3 * most_top_k, "too many entries");
          p.first_entry.push_back(p.first_entry.back() + count);
        }
      },
      [&](auto& column) { in.take(p.first_entry.back(), column); });
  in.require(in.at_end(), "a position of another length than it says");
  check(in, p, vocab_size);
  link(in, p, next);
  return p;
}

/// What a recording's first line says.
class HeaderReader {
 public:
  HeaderReader(const nlohmann::json& json, const std::string& where) : json_(json), where_(where) {}

  RecordingHeader read() const {
    RecordingHeader h;
    take("top_k", h.top_k, 1, most_top_k);
    take("nodes", h.nodes, 1, most_nodes);
    take("vocab_size", h.vocab_size, 1, INT32_MAX);
    take("draft_context", h.draft_context, 1, INT32_MAX);
    for (const auto& [name, params] :
         {std::pair{"target_params", &h.target_params}, {"draft_params", &h.draft_params}}) {
      HeaderReader(at(name, &nlohmann::json::is_object), where_).take(*params);
    }
    take("seed", h.seed, 0, UINT64_MAX);
    take("max_new_tokens", h.max_new_tokens, 1, INT32_MAX);
    take("prompts", h.prompts, 1, INT32_MAX);
    h.target = at("target", &nlohmann::json::is_string);
    h.draft = at("draft", &nlohmann::json::is_string);
    // Recordings of earlier versions lack these two.
    if (json_.contains("dtype")) h.dtype = at("dtype", &nlohmann::json::is_string);
    if (json_.contains("kv_dtype")) h.kv_dtype = at("kv_dtype", &nlohmann::json::is_string);
    return h;
  }

 private:
  using Kind = bool (nlohmann::json::*)() const;

  const nlohmann::json& at(const char* key, Kind is_kind) const {
    const auto found = json_.find(key);
    if (found != json_.end() && ((*found).*is_kind)()) return *found;
    throw_failure(cat(where_, ": \"", key, "\" in its first line is ",
                      found == json_.end() ? "missing" : shown(*found), "; record anew"));
  }
  template <typename T>
  void take(const char* key, T& value, double least, double most) const {
    const nlohmann::json& number =
        at(key, std::is_floating_point_v<T> ? &nlohmann::json::is_number
                                            : &nlohmann::json::is_number_integer);
    if (!(number.get<double>() >= least && number.get<double>() <= most)) {
      throw_failure(cat(where_, ": \"", key, "\" in its first line is ", shown(number),
                        "; it must be from ", least, " to ", most));
    }
    number.get_to(value);
  }
  void take(SamplingParams& p) const {
    take("temperature", p.temperature, 0.0, 100.0);
    take("top_k", p.top_k, 0, INT32_MAX);
    take("top_p", p.top_p, 0.0, 1.0);
    take("min_p", p.min_p, 0.0, 1.0);
    take("repetition_penalty", p.repetition_penalty, 0.0, 100.0);
  }

  const nlohmann::json& json_;
  const std::string& where_;
};

// Adds a block to what the blocks before it made.
void add_block(BlockReader in, bool is_text, Recording& recording) {
  if (!is_text) {
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

Recording read_recording(const std::filesystem::path& path) {
  const std::string where = cat("recording ", quote(path.string()));
  const std::string file = read_file(path, "recording", largest_recording);
  std::string_view rest = file;
  const JsonObject header = read_header(recording_format, file, where);
  const std::string_view line = *header_line(file);
  if (!fits_its_checksum(line)) {
    throw_failure(cat(where,
                      ": its first line does not fit its checksum, or has none; the file "
                      "is damaged, record anew or copy it again"));
  }
  Recording recording;
  recording.header = HeaderReader(*header, where).read();
  rest.remove_prefix(line.size() + 1);
  constexpr std::size_t block_header = 12;
  while (rest.size() >= block_header) {
    ByteReader in(rest);
    const auto kind = in.take<std::uint32_t>();
    const std::size_t bytes = in.take<std::uint32_t>();
    const auto sum = in.take<std::uint32_t>();
    const std::string_view payload = rest.substr(block_header, bytes);
    const BlockReader block(where, file.size() - rest.size(), payload);
    block.require(kind == text_block || kind == position_block, "no block begins here");
    if (payload.size() < bytes) break;
    block.require(recording_checksum(payload) == sum, "the block's checksum does not fit it");
    add_block(block, kind == text_block, recording);
    rest.remove_prefix(block_header + bytes);
  }
  recording.torn = !rest.empty();
  return recording;
}

}  // namespace coppice::study
