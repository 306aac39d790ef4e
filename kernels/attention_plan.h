// DeFT-Flatten, phase 1: even chunks of the flattened KV of a tree, each with the one
// contiguous run of queries that sees it (DeFT, appendix A.9, with visibility intervals in
// place of bit masks: in depth-first order the queries that see a token are an interval).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/types.h"
#include "kernels/device.h"
#include "kernels/visible_kv.h"

namespace coppice {

/// Tokens of the longest chunk of divisions that cut, but for flatten.
inline constexpr std::int32_t longest_group = 512;

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

  std::int32_t queries = 0;
  std::vector<KvSlot> slot;           ///< by flattened KV token
  std::vector<std::int32_t> q_begin;  ///< by flattened KV token
  std::vector<std::int32_t> q_end;
  std::vector<std::int32_t> position;  ///< by flattened KV token, in its text
  std::vector<std::int32_t> text_end;  ///< by text: the place after its last KV token
  std::vector<Chunk> chunks;
  /// Partial results of query q: partial_of[reduce_begin[q]] ... [reduce_begin[q + 1] - 1].
  std::vector<std::int32_t> reduce_begin;  ///< queries + 1 entries
  std::vector<std::int32_t> partial_of;
  std::int32_t partials = 0;

  /// Plans `kv`, in depth-first order, for `queries` rows in chunks of at most `chunk_tokens`.
  /// Every query must see at least one token. Neighbouring tokens of one chunk may differ in their
  /// intervals (then it is not full); a chunk never spans two tokens whose intervals have no query
  /// in common unless both are shorter than a chunk, and never tokens of two texts: what begins
  /// where all intervals before it have ended. Tokens with an empty interval, and holes, are
  /// dropped.
  void assign(std::span<const KvSegment> kv, std::int32_t queries, std::int32_t chunk_tokens);
  /// The same with chunks as choose_chunk_tokens() has them, of each text by its own tokens: what
  /// its rows sum up in which order does not depend on other texts.
  void assign(std::span<const KvSegment> kv, std::int32_t queries, std::int32_t kv_heads,
              int workers);
  /// By another division of DeFT's, whatever the texts; a chunk has the queries that see some of
  /// it:
  ///   node        a chunk for each node: tokens that the same queries see, and the chain that goes
  ///               on below them
  ///   node_chunk  long nodes cut evenly, into chunks of at most longest_group tokens
  ///   subtree     all tokens in depth-first order, cut evenly into chunks of at most longest_group
  ///               (DeFT's first version, A.4), and where their queries would not be one interval
  /// flatten is cut as subtree.
  void assign(std::span<const KvSegment> kv, std::int32_t queries, AttentionDivision division);

 private:
  void flatten(std::span<const KvSegment> kv, std::int32_t query_count);
  void cut(std::int32_t begin, std::int32_t end, std::int32_t chunk_tokens);
  void cut_nodes(std::int32_t chunk_tokens);
  std::int32_t emit_union(std::int32_t begin, std::int32_t end);
  void list_partials();
};

/// Chunk length that gives `workers` workers even shares of `kv_tokens` tokens times
/// `kv_heads` heads without splitting finer than pays.
std::int32_t choose_chunk_tokens(std::int64_t kv_tokens, std::int32_t kv_heads, int workers);

}  // namespace coppice
