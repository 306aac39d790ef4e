// A run of tokens of the tree that owns shared KV.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <vector>

#include "base/token_id.h"
#include "models/kv/kv_slots.h"

namespace coppice {

struct CacheNode {
  CacheNode(KvPool& target_pool, KvPool* draft_pool)
      : target(&target_pool), draft(draft_pool), place(idle.insert(idle.end(), this)) {}
  CacheNode(const CacheNode&) = delete;
  CacheNode& operator=(const CacheNode&) = delete;

  CacheNode* parent = nullptr;  ///< null: the root, the only one without tokens
  std::vector<TokenId> tokens;  ///< on the edge to it
  /// KV slots, one for each token. The draft's are those of the first tokens, or of none if the
  /// parent lacks some.
  KvSlots target, draft;
  std::map<TokenId, std::unique_ptr<CacheNode>> children;  ///< by their first token
  std::int32_t begin = 0;                                  ///< place of its first token in a text
  std::int32_t users = 0;                                  ///< refs at it and below it
  std::uint64_t used = 0;  ///< when a reference left it or one below it
  /// Its own entry while it is not in the cache's list of leaves without users.
  std::list<CacheNode*> idle;
  const std::list<CacheNode*>::iterator place;  ///< in either list
  // Scratch of the pass that is being laid out (models/kv/pass_layout.h):
  std::uint64_t pass = 0;
  std::int32_t first_text = 0;
  // Scratch for counting the texts that lack the draft's KV here (models/draft_gaps.h):
  std::uint64_t lacked = 0;
  std::int32_t lacking_texts = 0;

  std::int32_t size() const { return static_cast<std::int32_t>(tokens.size()); }
  std::int32_t end() const { return begin + size(); }
  bool draft_is_whole() const { return draft.size() == size(); }
};

}  // namespace coppice
