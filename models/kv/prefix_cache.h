// One tree of token runs, of which texts that begin alike share the KV. See README.md here.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "models/kv/cache_node.h"
#include "models/kv/kv_pool.h"

namespace coppice {

class PrefixCache;

/// A place in the tree, at the end of a node. The tokens up to there keep their KV while it lives:
/// a text, or a pinned prefix, has one. For one thread at a time. The cache outlives it.
class CacheRef {
 public:
  /// In no tree: it has no tokens, and gets none.
  CacheRef() = default;
  /// At the root.
  explicit CacheRef(PrefixCache& cache) noexcept;
  CacheRef(CacheRef&& other) noexcept;
  CacheRef& operator=(CacheRef&& other) noexcept;
  ~CacheRef() { leave(); }

  PrefixCache* cache() const { return cache_; }
  /// Tokens on the path to it.
  std::int32_t length() const { return length_; }
  /// How many of these, the first ones, the draft has KV of.
  std::int32_t draft_length() const noexcept;
  /// Another one at the same place.
  CacheRef fork() const noexcept;
  /// Goes down along `tokens`, a whole text, as far as the tree has them, to length() `most` at
  /// the farthest. A node is split where they part; without memory to do so it stays above.
  void advance(std::span<const TokenId> tokens, std::int32_t most) noexcept;
  /// Goes down along `tokens`, which follow those of the path, and takes over their KV from the
  /// front of `target`, which has as many slots or more, and of `draft`. What the tree has already
  /// is given back; what no reference but this one ends at grows in place. Returns how many tokens
  /// it went, fewer than given only without memory: the others' slots stay.
  std::int32_t append(std::span<const TokenId> tokens, KvSlots& target, KvSlots& draft) noexcept;
  /// Goes up to this length, or to less without memory. What lies below stays in the tree.
  void rewind(std::int32_t length) noexcept;
  /// Appends the slots of its tokens: the target's, or the draft's, of the first draft_length().
  void list_slots(bool of_target, std::vector<KvSlot>& slots) const;
  /// Whether both are at the same place of one tree.
  bool is_at(const CacheRef& other) const {
    return cache_ != nullptr && cache_ == other.cache_ && node_ == other.node_;
  }

  /// The first node on the path that the draft lacks tokens of; null: none. For comparison.
  const CacheNode* draft_gap() const noexcept;
  /// Gives the path the draft's KV of the tokens [from, from + count), the first of `slots`; it has
  /// that of those before. What the tree has by now, or has no memory for, is given back.
  void fill_draft(KvSlots& slots, std::int32_t from, std::int32_t count) noexcept;

 private:
  friend class DraftGaps;
  friend class PrefixCache;
  friend class PassLayout;
  CacheRef(PrefixCache* cache, CacheNode* node, std::int32_t length)
      : cache_(cache), node_(node), length_(length) {}
  void leave() noexcept;

  PrefixCache* cache_ = nullptr;
  CacheNode* node_ = nullptr;
  std::int32_t length_ = 0;
  mutable bool draft_whole_ = false;  ///< known: it stays so
};

/// Owns the KV of what texts share, of both models, so that their caches cannot drift apart.
/// Thread-safe. Nothing but the constructor can fail for lack of memory: less is shared then.
class PrefixCache {
 public:
  /// `draft` may be null. The pools outlive this, and this all refs.
  PrefixCache(KvPool& target, KvPool* draft);

  /// Tokens of the longest text in the tree that `tokens` begin with.
  std::int32_t match(std::span<const TokenId> tokens) const noexcept;

  /// KV slots of both pools.
  struct Slots {
    std::int32_t target = 0, draft = 0;
  };
  /// Takes KV that nobody uses until `wanted` slots are free: the least recently used leaf first,
  /// from its end. False: nothing was taken.
  bool evict(const Slots& wanted) noexcept;
  /// Counts the target's slots that could be taken.
  std::int32_t evictable() const noexcept;

  struct Counts {
    Slots shared;     ///< in the tree
    Slots evictable;  ///< of these, that nobody uses
    std::int64_t nodes = 0;
    std::int64_t evicted_tokens = 0;  ///< so far
  };
  Counts counts() const noexcept;

  /// Throws Error(failure) where the tree is not what it should be: tests.
  void validate() const;

  KvPool& target_pool() const { return target_; }
  KvPool* draft_pool() const { return draft_; }

 private:
  friend class DraftGaps;
  friend class CacheRef;
  friend class PassLayout;
  using Lock = std::lock_guard<std::mutex>;

  CacheNode* advance(CacheNode* from, std::span<const TokenId> tokens) noexcept;
  std::int32_t append(CacheRef& ref, std::span<const TokenId> tokens, KvSlots& target,
                      KvSlots& draft) noexcept;
  bool grow(CacheNode& node, std::span<const TokenId> tokens, KvSlots& target,
            KvSlots& draft) noexcept;
  CacheNode* add_child(CacheNode& node, std::span<const TokenId> tokens, KvSlots& target,
                       KvSlots& draft) noexcept;
  void fold(CacheNode& node, KvSlots& target, KvSlots& draft) noexcept;
  CacheNode* split(CacheNode& node, std::int32_t at) noexcept;
  void join_with_child(CacheNode& node) noexcept;
  void move_ref(CacheRef& ref, CacheNode& to) noexcept;
  void enter(CacheNode* node) noexcept;
  void leave(CacheNode* node) noexcept;
  void make_idle(CacheNode& node) noexcept;
  void cut_leaf(CacheNode& leaf, std::int32_t size) noexcept;
  std::int32_t own_refs(const CacheNode& node) const noexcept;
  using Owned = std::set<std::pair<bool, KvSlot>>;  ///< the target's, and the draft's
  void validate(const CacheNode& node, Counts& counts, std::int64_t& idle, Owned& owned) const;

  KvPool& target_;
  KvPool* const draft_;
  mutable std::mutex mutex_;  ///< of all nodes and of what follows
  CacheNode root_;
  std::list<CacheNode*> idle_;  ///< leaves without users, by CacheNode::used
  std::uint64_t clock_ = 0, passes_ = 0;
  Counts counts_;
};

}  // namespace coppice
