#include "study/replay_recording.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <string_view>
#include <system_error>
#include <type_traits>

#include "base/error.h"
#include "models/json_file.h"
#include "study/file_header.h"
#include "study/trace_bytes.h"

namespace coppice::study {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr FileFormat format = {"recording", "coppice-recording", 1, "coppice record"};
constexpr std::uintmax_t largest_file = std::uintmax_t{1} << 36;
constexpr std::uint32_t text_block = 1, position_block = 2;
constexpr std::int32_t most_top_k = 1024, most_nodes = 1025;

// Recordings are not continued.
constexpr const char* when_full = "free some space and start again with another --out";

std::uint32_t checksum(std::string_view bytes) {
  std::uint32_t hash = 0x811c9dc5u;
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x01000193u;
  return hash;
}

// What ends a first line that begins with `members`.
std::string line_end(std::string_view members) {
  char digits[16];
  std::snprintf(digits, sizeof digits, "%08x", static_cast<unsigned>(checksum(members)));
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
  put(out, checksum(payload));
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
        text_(read_file(path, "recording", largest_file)) {}

  Recording read() {
    take_header(read_header(format, text_, where_));
    std::size_t at = header_line(text_)->size() + 1;
    constexpr std::size_t block_header = 12;
    while (text_.size() - at >= block_header) {
      place_ = at;
      ByteReader in(std::string_view(text_).substr(at, block_header));
      const auto kind = in.take<std::uint32_t>();
      const std::size_t bytes = in.take<std::uint32_t>();
      const auto sum = in.take<std::uint32_t>();
      if (kind != text_block && kind != position_block) refuse("no block begins here");
      if (text_.size() - at - block_header < bytes) break;
      const std::string_view payload = std::string_view(text_).substr(at + block_header, bytes);
      if (checksum(payload) != sum) refuse("the block's checksum does not fit it");
      if (kind == text_block) {
        read_text(payload);
      } else {
        read_position(payload);
      }
      at += block_header + bytes;
    }
    recording_.torn = at != text_.size();
    return std::move(recording_);
  }

 private:
  [[noreturn]] void refuse(const char* what) const {
    throw_failure(cat(where_, " byte ", place_, ": ", what,
                      "; the file is damaged, record anew or copy it again"));
  }
  void require(bool good, const char* what) const {
    if (!good) refuse(what);
  }

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

  std::string folder(const nlohmann::json& json, const char* key) const {
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
    h.top_k = number(json, "top_k", 1, most_top_k);
    h.nodes = number(json, "nodes", 1, most_nodes);
    h.vocab_size = number<std::int64_t>(json, "vocab_size", 1, INT32_MAX);
    h.draft_context = number(json, "draft_context", 1, INT32_MAX);
    h.target_params = params(json, "target_params");
    h.draft_params = params(json, "draft_params");
    h.seed = number<std::uint64_t>(json, "seed", 0, UINT64_MAX);
    h.max_new_tokens = number(json, "max_new_tokens", 1, INT32_MAX);
    h.prompts = number(json, "prompts", 1, INT32_MAX);
    h.target = folder(json, "target");
    h.draft = folder(json, "draft");
  }

  template <typename T>
  void take_all(ByteReader& in, std::size_t count, std::vector<T>& values) const {
    require(in.left() / sizeof(T) >= count, "the block is shorter than it says");
    values.resize(count);
    for (T& value : values) value = in.take<T>();
  }

  void read_text(std::string_view payload) {
    ByteReader in(payload);
    RecordedText text;
    text.prompt = static_cast<std::int32_t>(in.take<std::uint32_t>());
    text.prompt_tokens = static_cast<std::int32_t>(in.take<std::uint32_t>());
    const auto count = in.take<std::uint32_t>();
    take_all(in, count, text.tokens);
    require(in.ok() && in.left() == 0, "a text of another length than it says");
    require(text.prompt >= 0 && text.prompt_tokens > 0, "a text without a prompt");
    recording_.texts.push_back(std::move(text));
  }

  static bool is_prob(float p) { return p >= 0.0f && p <= 1.001f; }  // false for NaN

  void read_position(std::string_view payload) {
    require(!recording_.texts.empty(), "a position without a text");
    RecordedText& text = recording_.texts.back();
    require(text.positions.size() < text.tokens.size(), "more positions than tokens");
    ByteReader in(payload);
    RecordedPosition p;
    const auto nodes = static_cast<std::size_t>(in.take<std::uint32_t>());
    require(nodes >= 1 && nodes <= static_cast<std::size_t>(most_nodes), "too many nodes or none");
    take_all(in, nodes, p.parent);
    take_all(in, nodes, p.parent_entry);
    std::vector<std::uint16_t> entries;
    take_all(in, nodes, entries);
    p.first_entry.assign(1, 0);
    for (const std::uint16_t count : entries) {
      require(count <= 3 * most_top_k, "too many entries");
      p.first_entry.push_back(p.first_entry.back() + count);
    }
    const auto m = static_cast<std::size_t>(p.first_entry.back());
    take_all(in, nodes, p.target_token);
    take_all(in, nodes, p.draft_rest);
    take_all(in, nodes, p.target_rest);
    take_all(in, nodes, p.overlap);
    take_all(in, m, p.token);
    take_all(in, m, p.draft);
    take_all(in, m, p.target);
    take_all(in, m, p.settled_rank);
    take_all(in, m, p.sampled_rank);
    require(in.left() == 0, "a position of another length than it says");
    check(p);
    p.child.assign(m, -1);
    for (std::size_t node = 1; node < nodes; ++node) {
      const auto parent = static_cast<std::size_t>(p.parent[node]);
      require(parent < node && p.parent_entry[node] < entries[parent],
              "a node whose parent is not there");
      std::int32_t& child = p.child[p.first_entry[parent] + p.parent_entry[node]];
      require(child < 0, "two nodes in one place");
      child = static_cast<std::int32_t>(node);
    }
    text.positions.push_back(std::move(p));
  }

  void check(const RecordedPosition& p) const {
    for (const auto* probs : {&p.draft_rest, &p.target_rest, &p.overlap, &p.draft, &p.target}) {
      require(std::all_of(probs->begin(), probs->end(), is_prob), "a probability outside [0, 1]");
    }
    const auto in_vocabulary = [&](TokenId token) {
      return token >= 0 && token < recording_.header.vocab_size;
    };
    require(std::all_of(p.token.begin(), p.token.end(), in_vocabulary) &&
                std::all_of(p.target_token.begin(), p.target_token.end(), in_vocabulary),
            "a token outside the vocabulary");
    for (std::int32_t node = 0; node < p.nodes(); ++node) {
      const std::size_t first = p.first_entry[static_cast<std::size_t>(node)];
      const auto entries = static_cast<std::size_t>(p.entries(node));
      require_order(std::span(p.settled_rank).subspan(first, entries));
      require_order(std::span(p.sampled_rank).subspan(first, entries));
      for (std::size_t e = 1; e < entries; ++e) {
        require(p.token[first + e - 1] < p.token[first + e], "entries out of order");
      }
    }
  }

  // Ranks 0, 1, ..., each once, in any places.
  void require_order(std::span<const std::uint16_t> ranks) const {
    std::vector<char> seen(ranks.size(), 0);
    std::ptrdiff_t ranked = 0;
    for (const std::uint16_t rank : ranks) {
      if (rank == no_rank) continue;
      require(rank < ranks.size() && seen[rank] == 0, "sibling ranks that are no order");
      seen[rank] = 1;
      ++ranked;
    }
    require(std::find(seen.begin(), seen.begin() + ranked, 0) == seen.begin() + ranked,
            "sibling ranks with a gap");
  }

  std::string where_;
  std::string text_;
  std::size_t place_ = 0;
  Recording recording_;
};

}  // namespace

std::int32_t RecordedPosition::entries(std::int32_t node) const {
  const auto i = static_cast<std::size_t>(node);
  return static_cast<std::int32_t>(first_entry[i + 1] - first_entry[i]);
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
  Json json = header_of(format);
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
               {"draft", h.draft}});
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
