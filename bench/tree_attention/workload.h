// Which tokens one layer's attention is about, where they lie and who sees them.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "base/token_tree.h"
#include "cells.h"
#include "kernels/cuda/attention/flatten_plan.h"
#include "kernels/device.h"
#include "kernels/visible_kv.h"

namespace coppice::bench {

/// A tree of `nodes` nodes grown as DySpec grows one, from random draft distributions: the
/// position of the highest value is drawn next, and every draw takes u^(2/3) of the mass that is
/// left to a node's further children, u uniform (0.6 in the mean).
TokenTree dyspec_like_tree(std::int32_t nodes, std::mt19937& random);
/// Every node's parent is one of the earlier nodes, all equally likely.
TokenTree uniform_tree(std::int32_t nodes, std::mt19937& random);

/// Orders of a tree's nodes as query rows and KV tokens.
enum class RowOrder {
  added,          ///< as the tree grew
  breadth_first,  ///< by depth, then as added
  depth_first,
  heavy_path,  ///< depth-first, larger subtrees first
};

const char* name_of(RowOrder order);

/// Which queries see which tail tokens.
class Visibility {
 public:
  Visibility() = default;
  Visibility(std::int32_t rows, std::int32_t tail)
      : rows_(rows),
        tail_(tail),
        bits_(static_cast<std::size_t>(rows) * static_cast<std::size_t>(tail), false) {}

  std::int32_t rows() const { return rows_; }
  std::int32_t tail() const { return tail_; }
  bool sees(std::int32_t query, std::int32_t token) const { return bits_[at(query, token)]; }
  void set(std::int32_t query, std::int32_t token) { bits_[at(query, token)] = true; }

 private:
  std::size_t at(std::int32_t query, std::int32_t token) const {
    return static_cast<std::size_t>(query) * static_cast<std::size_t>(tail_) +
           static_cast<std::size_t>(token);
  }
  std::int32_t rows_ = 0;
  std::int32_t tail_ = 0;
  std::vector<bool> bits_;
};

/// Non-empty blocks of `queries` x `tokens` in the tail's mask.
std::int64_t count_blocks(const Visibility& visibility, std::int32_t queries, std::int32_t tokens);

/// Pages of a pool and how a text's follow one another; pages of 1 are slots.
struct PageOrder {
  std::int32_t page_size = 16;
  bool shuffled = true;
  bool scattered = false;  ///< no two slots of a text lie side by side but by chance
};

/// Slots are contiguous inside a page unless they are scattered; the tail, every few-shot branch,
/// and of a forest every shared node and every text's prefix and tree, begins a page of its own.
struct Workload {
  Cell cell;
  std::int32_t page_size = 16;
  std::int32_t pages = 0;
  std::vector<KvSlot> prefix;
  std::vector<KvSlot> tail_slots;
  Visibility visibility;
  /// tail_slots with their intervals of queries; empty for orders that have none.
  std::vector<VisibleKv> tail;
  std::vector<IndexRange> former;       ///< of the tail: runs of former passes' tokens
  std::vector<std::int32_t> positions;  ///< of the rows; empty likewise

  std::int32_t tokens() const {
    return static_cast<std::int32_t>(prefix.size() + tail_slots.size());
  }
  KvLayout layout(std::int32_t layers) const {
    return {layers, cell.kv_heads, cell.head_dim, page_size, pages};
  }
};

Workload make_workload(const Cell& cell, std::uint32_t seed, const PageOrder& order = {});
/// A verify cell over this tree.
Workload make_tree_workload(const Cell& cell, const TokenTree& tree, RowOrder order,
                            std::mt19937& random, const PageOrder& pages = {});

}  // namespace coppice::bench
