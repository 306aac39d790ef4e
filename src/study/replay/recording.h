// What replay needs of a pair of models: distributions of draft and target around texts that the
// target wrote.
//
// A text is plain decoding's own: positions t = 0, 1, ..., of which position t is the root whose
// successor is the text's token t. Around each position a tree of nodes is recorded: the root, and
// draft paths that leave the text at once. (Paths that follow the text first are found at the
// position where they leave it.) Per node there are
//   - its children as the draft draws them, K of each order: settled, by coupled noise (at
//     temperature 0: by D), and sampled, without replacement, by noise of the node's own;
//   - entries: these tokens and the K of largest max(D, T), each with its probability under draft
//     (D) and target (T), both processed;
//   - the target's token there, by argmax or under coupled noise;
//   - of all other tokens together: D, T, and their overlap, the sum of min(D, T).
// Entries are, beside these, the tokens that lookup would propose there (drafting/lookup.h).
// Recorded are the nodes that trees will want: those of largest w, the product of D along the path,
// and of largest product of acceptance by sibling rank, whichever is larger, on paths that are
// drawn in one order throughout; a token that lookup proposes counts as drawn with its chance.
//
// The file: the line "coppice-recording 4", then blocks
//   u64 bytes of payload   u64 FNV-1a of these 8 bytes   u64 FNV-1a of payload   payload
// little-endian throughout. The first holds the header: JSON, the members of RecordingHeader. Every
// other one is a text:
//   u32 prompt, u32 p, i32 prompt_token[p] (BOS included), u32 n, i32 token[n], u32 positions, up
//   to
//   n
// and its positions in order, each
//   u32 nodes, u32 m, then columns one after the other:
//   u32 parent[nodes] (node; the root's is 0), u16 parent_entry[nodes] (which of the parent's
//   entries it is), u8 origin[nodes] (base/types.h: 1 of a token that only lookup proposes), u32
//   first_entry[nodes + 1] (offsets into the m entries), i32
//   target_token[nodes], f32 draft_rest[nodes], target_rest[nodes], overlap[nodes], i32 token[m],
//   f32 draft[m], f32 target[m], u16 settled_rank[m], u16 sampled_rank[m] (65535: not among the
//   first K)
// A block cut short at the end is left out. Version 3 has neither prompt_token nor origin: all of
// its nodes are the model's, and lookup cannot be replayed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/appended_file.h"
#include "base/sampling_params.h"
#include "base/types.h"
#include "study/files/member_list.h"

namespace coppice::study {

/// Place of an entry that is not among the children drawn.
inline constexpr std::uint16_t no_rank = 0xffff;

/// Children of a position's nodes in one of the two orders, by node, then by rank. What growth
/// reads of a node lies together: recordings are larger than caches.
class ChildTable {
 public:
  struct Child {
    float draft = 0.0f;       ///< D
    std::uint16_t entry = 0;  ///< of its parent
    /// That it leads to; 0: the next position's root, for the text goes on with this child.
    std::uint16_t node = no_node;
  };
  static constexpr std::uint16_t no_node = 0xffff;  ///< none is recorded

  ChildTable() = default;
  /// `first_entry`: [nodes + 1] offsets into the others, which are by entry: its rank (those of a
  /// node are 0, 1, ..., or no_rank), D, and the node that it leads to, as in Child.
  ChildTable(std::span<const std::uint32_t> first_entry, std::span<const std::uint16_t> rank,
             std::span<const float> draft, std::span<const std::uint16_t> leads_to);

  std::span<const Child> of(std::int32_t node) const {
    return {children_.data() + first_[node], first_[node + 1] - first_[node]};
  }

 private:
  std::vector<std::uint32_t> first_;  // [nodes + 1] offsets into the children
  std::vector<Child> children_;
};

struct RecordingHeader {
  std::int32_t top_k = 0;  ///< K, up to most_top_k; from vocab_size on everything is recorded
  std::int32_t nodes = 0;  ///< most per position, the root included; up to most_nodes
  std::int64_t vocab_size = 0;
  std::int32_t draft_context = 0;  ///< most tokens that the draft can follow
  StoredSampling target_params, draft_params;
  std::uint64_t seed = 0;  ///< of all noise; the stream is the prompt's number
  std::int32_t max_new_tokens = 0;
  std::int32_t prompts = 0;
  std::string target, draft;  ///< folders
  std::string dtype;          ///< that the target computed in
  std::string kv_dtype;       ///< of keys and values
  std::string fingerprint;    ///< of both folders and all prompts' tokens

  COPPICE_MEMBERS(top_k, nodes, vocab_size, draft_context, target_params, draft_params, seed,
                  max_new_tokens, prompts, target, draft, dtype, kv_dtype, fingerprint)
};

inline constexpr std::int32_t most_top_k = 1024, most_nodes = 1025;

/// What a file begins with.
inline constexpr std::string_view recording_start = "coppice-recording 4\n";
/// The same of version 3, which is read, too.
inline constexpr std::string_view recording_start_3 = "coppice-recording 3\n";
/// A block as it stands in the file.
std::string recording_block(std::string_view payload);

/// Distributions at the nodes around one position. By node, then by entry; node 0 is the root.
struct RecordedPosition {
  std::vector<std::uint32_t> parent;
  std::vector<std::uint16_t> parent_entry;
  std::vector<Origin> origin;
  std::vector<std::uint32_t> first_entry;  ///< [nodes + 1] offsets into the entries
  std::vector<TokenId> target_token;
  std::vector<float> draft_rest, target_rest, overlap;
  // By entry, within a node by token:
  std::vector<TokenId> token;
  std::vector<float> draft, target;
  std::vector<std::uint16_t> settled_rank, sampled_rank;
  // Not in the file, made in reading:
  std::vector<std::uint16_t> leads_to;  ///< by entry, as ChildTable::Child::node
  ChildTable settled, sampled;

  /// Visits the columns in the file's order: visit(column, length). `has_origins`: of version 4.
  static void columns(auto& self, std::size_t nodes, std::size_t entries, bool has_origins,
                      auto visit) {
    visit(self.parent, nodes), visit(self.parent_entry, nodes);
    if (has_origins) visit(self.origin, nodes);
    visit(self.first_entry, nodes + 1), visit(self.target_token, nodes);
    visit(self.draft_rest, nodes), visit(self.target_rest, nodes), visit(self.overlap, nodes);
    visit(self.token, entries), visit(self.draft, entries), visit(self.target, entries);
    visit(self.settled_rank, entries), visit(self.sampled_rank, entries);
  }

  std::int32_t nodes() const { return static_cast<std::int32_t>(parent.size()); }
  std::int32_t entries(std::int32_t node) const {
    return static_cast<std::int32_t>(first_entry[node + 1] - first_entry[node]);
  }
};

struct RecordedText {
  std::int32_t prompt = 0;
  std::int32_t prompt_tokens = 0;
  std::vector<TokenId> prompt_ids;  ///< empty in version 3
  std::vector<TokenId> tokens;      ///< new ones
  std::vector<RecordedPosition> positions;

  /// Positions that steps can start at.
  std::int32_t length() const { return static_cast<std::int32_t>(positions.size()); }
};

struct Recording {
  RecordingHeader header;
  std::vector<RecordedText> texts;
  std::uintmax_t whole_bytes = 0;  ///< of the file, up to the end of its last whole block
  bool torn = false;               ///< something followed

  /// Most entries of a node.
  std::int32_t widest() const;
  /// "holds 2 of 24 texts, 1 of them ended early"; empty where all that was asked for is there.
  std::string missing() const;
};

/// Writes a recording text by text. What has been appended stays whatever happens next.
class RecordingWriter {
 public:
  /// Creates the file, or goes on behind the last whole text of one with the same header. Throws
  /// Error(usage) for any other file and for one that is being written, Error(failure) if it cannot
  /// be written.
  RecordingWriter(const std::filesystem::path& path, const RecordingHeader& header);
  /// Those that are there.
  std::size_t texts() const { return texts_; }
  /// Throws Error(failure); the file then ends where it did before.
  void append(const RecordedText& text);

 private:
  std::optional<AppendedFile> file_;
  std::size_t texts_ = 0;
};

/// Throws Error(failure) that names the place: no such file, no recording, another version, a
/// damaged block.
Recording read_recording(const std::filesystem::path& path);

}  // namespace coppice::study
