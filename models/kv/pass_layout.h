// The rows of a pass in depth-first order of the tree, and what they see of former passes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/visible_kv.h"
#include "models/kv/prefix_cache.h"

namespace coppice {

/// Texts that go below a node stand side by side, so that who sees the node's KV is an interval of
/// rows, and attention reads it once for all of them. Reused: keeps its memory.
class PassLayout {
 public:
  /// Runs of fewer tokens, of nodes that the same texts go through, are listed for each text or
  /// group below them instead: one interval over all rows would cost attention more than it saves.
  static constexpr std::int32_t least_shared = 64;

  /// Most tokens that a pass of `texts` texts lists, of `kv_tokens` that they have. Each text and
  /// each group, of which there are fewer than texts, lists at most one run that is too short to
  /// be listed above it.
  static constexpr std::int64_t most_listed(std::int64_t kv_tokens, std::int32_t texts) {
    return kv_tokens + 2 * std::int64_t{least_shared - 1} * texts;
  }

  /// Every text's KV is listed for it alone: what several see is read by each of them (as
  /// RadixAttention does), for comparison.
  bool by_text = false;

  enum class Of { target, draft };

  /// A new pass. References that follow belong to one cache or to none.
  void begin(Of model);
  /// A text, which has `rows` rows and `tail`: the slots of its own tokens of former passes, from
  /// token `tail_begin` on. Ref and tail stay as they are until the pass is queued.
  void add(const CacheRef& base, std::span<const KvSlot> tail, std::int32_t rows,
           std::int32_t tail_begin);

  /// Orders the texts.
  void arrange();
  /// The texts, by their number in the order of add(), in the order of their rows.
  std::span<const std::int32_t> order() const { return order_; }
  std::int32_t first_row(std::int32_t text) const { return texts_[to_size(text)].first_row; }
  /// Appends the segments that stand before the text's rows: of nodes that it is the first to see,
  /// then one that only it sees, which may be empty.
  void list_before(std::int32_t text, std::vector<KvSegment>& segments) const;

  /// Tokens of former passes that the pass reads, and would read text by text.
  std::int64_t tokens() const { return tokens_; }
  std::int64_t tokens_by_text() const { return tokens_by_text_; }

 private:
  struct Text {
    const CacheRef* base;
    std::span<const KvSlot> tail;
    std::int32_t rows, tail_begin;
    std::size_t path_begin = 0, path_end = 0;  ///< in paths_
    std::int32_t first_row = 0;
    std::size_t runs_begin = 0, runs_end = 0;
  };
  struct Run {
    std::int32_t q_begin, q_end, position;
    std::span<const KvSlot> own;  ///< or
    std::size_t begin, size;      ///< in slots_
  };

  static std::size_t to_size(std::int32_t n) { return static_cast<std::size_t>(n); }
  std::span<const KvSlot> slots_of(const CacheNode& node) const {
    return (of_ == Of::target ? node.target : node.draft).all();
  }
  /// A run of nodes that several texts go through.
  bool is_listed_once(std::int32_t tokens) const { return !by_text && tokens >= least_shared; }
  std::size_t depth(std::int32_t text) const;
  CacheNode* node(std::int32_t text, std::size_t depth) const;
  void find_paths();
  bool comes_before(std::int32_t a, std::int32_t b) const;
  void lay(std::size_t begin, std::size_t end, std::size_t depth, std::size_t pending);
  void begin_run(std::int32_t q_begin, std::int32_t q_end);
  void add_slots(std::span<const KvSlot> slots, std::int32_t position);
  void add_own(const Text& text);

  Of of_ = Of::target;
  std::uint64_t serial_ = 0;
  std::vector<Text> texts_;
  std::vector<CacheNode*> paths_;  ///< from below the root, text by text
  std::vector<std::int32_t> order_;
  std::vector<Run> runs_;
  std::vector<KvSlot> slots_;
  std::int64_t tokens_ = 0, tokens_by_text_ = 0;
};

}  // namespace coppice
