// DeFT-Flatten, phase 1: chunks of the flattened KV of a tree, each with the one contiguous run of
// queries that sees it (DeFT, appendix A.9, with visibility intervals in place of bit masks: in
// depth-first order the queries that see a token are an interval).
//
// DeFT cuts chunks evenly. Here they are cut by position, so that what a query sums up, and in
// which order, depends on the tokens it sees alone: not on its siblings, on other texts, on how
// many of the tokens are of the same pass, nor on the number of workers. A draft then changes no
// bit of the target's logits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/types.h"
#include "kernels/device.h"
#include "kernels/visible_kv.h"

namespace coppice {

/// Tokens of the longest chunk of divisions that cut evenly.
inline constexpr std::int32_t longest_group = 512;

/// Positions of a text whose tokens make up a chunk of flatten.
inline constexpr std::int32_t position_group = 64;

/// Work for one attention launch over `queries` rows, all heads alike. Reused from pass to
/// pass: assign() keeps its memory.
struct AttentionPlan {
  /// KV tokens [kv_begin, kv_end) of the flattened list, seen by (a subset of) the queries
  /// [q_begin, q_end). `full`: every query of the range sees every token, no mask needed.
  struct Chunk {
    std::int32_t kv_begin, kv_end;
    std::int32_t q_begin, q_end;
    std::int32_t partial;  ///< index of query q_begin's partial result; consecutive after it
    bool full;
  };
  /// Queries whose tokens no others see, and their chunks; what begins where all intervals before
  /// it have ended. Texts that share a prefix are one. Divisions but flatten have a single one.
  struct Text {
    std::int32_t q_begin, q_end;
    std::int32_t chunk_begin, chunk_end;
  };

  std::int32_t queries = 0;
  std::vector<KvSlot> slot;           ///< by flattened KV token
  std::vector<std::int32_t> q_begin;  ///< by flattened KV token
  std::vector<std::int32_t> q_end;
  std::vector<std::int32_t> position;  ///< by flattened KV token, in its text
  std::vector<Text> texts;
  std::vector<Chunk> chunks;
  /// Partial results of query q: partial_of[reduce_begin[q]] ... [reduce_begin[q + 1] - 1].
  std::vector<std::int32_t> reduce_begin;  ///< queries + 1 entries
  std::vector<std::int32_t> partial_of;
  std::int32_t partials = 0;

  /// Plans `kv`, in depth-first order, for `queries` rows. Every query must see at least one token.
  /// Neighbouring tokens of one chunk may differ in their intervals (then it is not full); every
  /// query of a chunk sees one of its tokens. Tokens with an empty interval, and holes, are
  /// dropped.
  ///   flatten     a text's tokens of position_group positions, [0, position_group) first, in
  ///               depth-first order: one chunk, or several that no query sees two of
  /// and by the other divisions, which follow DeFT, whatever the texts:
  ///   node        a chunk for each node: tokens that the same queries see, and the chain that goes
  ///               on below them
  ///   node_chunk  long nodes cut evenly, into chunks of at most longest_group tokens
  ///   subtree     all tokens in depth-first order, cut evenly into chunks of at most longest_group
  ///               (DeFT's first version, A.4), and where their queries would not be one interval
  void assign(std::span<const KvSegment> kv, std::int32_t queries, AttentionDivision division);

 private:
  void flatten(std::span<const KvSegment> kv, std::int32_t query_count);
  void group_by_position(std::int32_t begin, std::int32_t end);
  void cut_groups(std::int32_t begin, std::int32_t end);
  void cut_nodes(std::int32_t chunk_tokens);
  std::int32_t emit_union(std::int32_t begin, std::int32_t end, std::int32_t apart);
  void list_partials();

  std::vector<std::int32_t> text_end_;       ///< by text: the place after its last KV token
  std::vector<std::int32_t> place_, moved_;  ///< of group_by_position()
};

}  // namespace coppice
