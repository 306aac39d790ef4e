// What is measured, what it costs at least, and what is asked of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/cuda/attention/flatten_plan.h"
#include "kernels/device.h"

namespace coppice::bench {

enum class Kind {
  verify,   ///< a token tree over a prefix, a query per node
  fewshot,  ///< branches over a prefix, a query at each branch's end
  decode,   ///< one query
  prefill,  ///< a chunk of text over a prefix
  forest,   ///< several texts, each a token tree over a prefix of its own; they may share levels
};

const char* name_of(Kind kind);

inline constexpr std::int32_t branch_tokens = 400;  ///< of few-shot branches

/// Nodes of a forest that lie equally deep.
struct NodeLevel {
  std::int32_t nodes = 1;
  std::int32_t tokens = 0;  ///< of each node
};

/// A node of a forest of any form.
struct ForestNode {
  IndexRange rows;  ///< below it
  std::int32_t tokens = 0;
};

/// One layer's attention.
struct Cell {
  Kind kind = Kind::verify;
  std::int32_t heads = 32;
  std::int32_t kv_heads = 8;
  std::int32_t prefix = 0;
  std::int32_t rows = 1;   ///< queries: nodes of the tree, root included; branches; text tokens
  std::int32_t texts = 1;  ///< of forests, which share prefix and rows out equally
  std::int32_t head_dim = 128;
  std::int32_t window = 0;  ///< as in AttentionRule, and so the next
  float soft_cap = 0.0f;
  /// In forests, levels of nodes above the texts. The first level is one node; all nodes of a level
  /// have equally many children, those of the last one texts.
  std::vector<NodeLevel> levels = {};
  /// In forests, instead of levels and prefix: nodes in depth-first order, behind them a token of
  /// every row. `label` is their name.
  std::vector<ForestNode> nodes = {};
  std::string label = {};
  /// If all rows see all nodes, they may be a token tree: its nodes' parents, as in TreeOrder.
  std::vector<std::int32_t> parents = {};

  AttentionShape shape() const { return {heads, kv_heads, head_dim}; }
  std::int32_t group() const { return heads / kv_heads; }
  /// Tokens that every query sees.
  std::int32_t shared() const;
  std::size_t shared_nodes() const;  ///< the first ones, that all rows see
  /// Tokens of a path through the levels.
  std::int32_t above() const;
  /// Tokens of former passes.
  std::int32_t former() const;
  std::int32_t tail() const {
    return kind == Kind::fewshot ? rows * branch_tokens : rows + former() - shared();
  }
  /// E.g. "verify/32/8/p4096/t64", "forest/32/8/p64x1024/t64x4",
  /// "forest/32/8/s1x512-8x512/p64x128/t64x4" (two shared levels, of one and eight nodes),
  /// "forest/32/8/sorting@120/t9" (nodes) or "verify/32/8/p4096/t64/d256/w1024/c50": what --cells
  /// looks in.
  std::string name() const;
};

std::vector<Cell> verify_cells();   ///< the 60 of anchors.csv, then the few-shot ones
std::vector<Cell> decode_cells();   ///< three head shapes, prefix 1k to 64k
std::vector<Cell> prefill_cells();  ///< 256 and 512 rows
std::vector<Cell> forest_cells();  ///< 8 to 64 texts apart of 1 to 16 rows, 200 to 4096 tokens each
std::vector<Cell> shared_cells();  ///< texts that share one to five levels, as papers have them
/// The trees of FastTree's run_benchmark.sh, a row at each leaf, in its three head shapes.
std::vector<Cell> fasttree_cells();
std::vector<Cell> rule_cells();  ///< by windows, with soft caps, of other heads; and without

/// The cells whose name followed by a "/" contains one of the comma-separated words, all for an
/// empty filter; a word that ends in "/" so ends where a number ends.
std::vector<Cell> filtered(const std::vector<Cell>& cells, std::string_view filter);

/// Characters of the longest name, at least those of "cell".
int name_width(const std::vector<Cell>& cells);

/// The least that any kernel reads, writes and computes.
struct Cost {
  double bytes = 0.0;  ///< K, V, Q and O once, all as bf16
  double flops = 0.0;  ///< of both products
};

/// As anchors.csv counts: in verify and few-shot cells every query sees the whole prefix, and
/// what it sees of the tail is left out of the flops (not of the bytes). In forests likewise, a
/// text's path through the levels and its own tokens being its prefix. Elsewhere all visible
/// pairs count. By a window, what some row sees of the prefix is read, and no row counts with more
/// tokens than that.
Cost cost_of(const Cell& cell);

/// What the card does, measured.
struct Ceilings {
  double bytes_per_second = 0.0;
  double flops_per_second = 0.0;
};

double bytes_us(const Cost& cost, const Ceilings& ceilings);
double flops_us(const Cost& cost, const Ceilings& ceilings);
/// Their maximum: no kernel takes less.
double bound_us(const Cost& cost, const Ceilings& ceilings);
/// 4 us + the bound at 92% of the bandwidth and 70% of the matrix rate.
double target_us(const Cost& cost, const Ceilings& ceilings);

/// 9 us for a start and an exchange between blocks + the bound at 85% of the bandwidth and 65% of
/// the matrix rate.
double forest_target_us(const Cost& cost, const Ceilings& ceilings);

/// The best of the existing kernels in one cell.
struct Anchor {
  Cell cell;
  double best_us = 0.0;
  double bound_us = 0.0;  ///< by the file's ceilings
  std::string by;
};

/// Ceilings by which anchors.csv states its bounds.
inline constexpr Ceilings anchor_ceilings{4.6e12, 790e12};

/// Reads the text of anchors.csv. Throws Error(failure) that names a broken line.
std::vector<Anchor> read_anchors(std::string_view csv);
/// anchors.csv as it was when the program was built.
std::vector<Anchor> committed_anchors();
std::optional<Anchor> anchor_of(const std::vector<Anchor>& anchors, const Cell& cell);

}  // namespace coppice::bench
