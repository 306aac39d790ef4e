#include "cells.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "anchors_text.h"
#include "base/error.h"

namespace coppice::bench {
namespace {

constexpr std::pair<std::int32_t, std::int32_t> head_shapes[] = {{32, 8}, {32, 32}, {64, 8}};
constexpr double bf16_bytes = 2.0;

/// Splits at every `separator`; the last of at most `fields` fields takes the rest.
std::vector<std::string_view> split(std::string_view text, char separator, std::size_t fields) {
  std::vector<std::string_view> parts;
  while (parts.size() + 1 < fields) {
    const std::size_t at = text.find(separator);
    if (at == std::string_view::npos) break;
    parts.push_back(text.substr(0, at));
    text.remove_prefix(at + 1);
  }
  parts.push_back(text);
  return parts;
}

template <typename Number>
bool parse(std::string_view text, Number& number) {
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, number);
  return result.ec == std::errc() && result.ptr == end;
}

bool parse_anchor(std::string_view line, Anchor& anchor) {
  const auto fields = split(line, ',', 8);
  if (fields.size() != 8) return false;
  Cell& cell = anchor.cell;
  if (fields[0] != "verify" && fields[0] != "fewshot") return false;
  cell.kind = fields[0] == "verify" ? Kind::verify : Kind::fewshot;
  anchor.by = fields[7];
  return parse(fields[1], cell.heads) && parse(fields[2], cell.kv_heads) &&
         parse(fields[3], cell.prefix) && parse(fields[4], cell.rows) &&
         parse(fields[5], anchor.best_us) && parse(fields[6], anchor.bound_us) &&
         anchor.best_us > 0.0;
}

Cell shared_cell(std::pair<std::int32_t, std::int32_t> heads, std::vector<NodeLevel> levels,
                 std::int32_t texts, std::int32_t tokens, std::int32_t rows) {
  Cell cell{Kind::forest, heads.first, heads.second, texts * tokens, texts * rows, texts};
  cell.levels = std::move(levels);
  return cell;
}

}  // namespace

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::verify:
      return "verify";
    case Kind::fewshot:
      return "fewshot";
    case Kind::decode:
      return "decode";
    case Kind::prefill:
      return "prefill";
    case Kind::forest:
      return "forest";
  }
  return "";
}

std::string Cell::name() const {
  const auto shared_out = [this](std::int32_t count) {
    return texts == 1 ? cat(count) : cat(texts, "x", count / texts);
  };
  if (!nodes.empty()) return cat(name_of(kind), "/", heads, "/", kv_heads, "/", label, "/t", rows);
  std::string above;
  for (const NodeLevel& level : levels) {
    above += cat(above.empty() ? "/s" : "-", level.nodes, "x", level.tokens);
  }
  return cat(name_of(kind), "/", heads, "/", kv_heads, above, "/p", shared_out(prefix), "/t",
             shared_out(rows), head_dim == 128 ? "" : cat("/d", head_dim),
             window == 0 ? "" : cat("/w", window), soft_cap > 0 ? cat("/c", soft_cap) : "");
}

std::size_t Cell::shared_nodes() const {
  const auto apart = std::find_if(nodes.begin(), nodes.end(), [this](const ForestNode& node) {
    return node.rows.end - node.rows.begin < rows;
  });
  return static_cast<std::size_t>(apart - nodes.begin());
}

std::int32_t Cell::shared() const {
  if (kind != Kind::forest) return prefix;
  std::int32_t tokens = levels.empty() ? 0 : levels.front().tokens;
  const std::size_t nodes_of_all = shared_nodes();
  for (std::size_t i = 0; i < nodes_of_all; ++i) tokens += nodes[i].tokens;
  return tokens;
}

std::int32_t Cell::above() const {
  std::int32_t tokens = 0;
  for (const NodeLevel& level : levels) tokens += level.tokens;
  return tokens;
}

std::int32_t Cell::former() const {
  std::int32_t tokens = prefix;
  for (const NodeLevel& level : levels) tokens += level.nodes * level.tokens;
  for (const ForestNode& node : nodes) tokens += node.tokens;
  return tokens;
}

std::vector<Cell> verify_cells() {
  std::vector<Cell> cells;
  for (const auto& [heads, kv_heads] : head_shapes) {
    for (const std::int32_t prefix : {1024, 4096, 16384, 65536}) {
      for (const std::int32_t tree : {32, 64, 128, 256, 768}) {
        cells.push_back({Kind::verify, heads, kv_heads, prefix, tree});
      }
    }
  }
  for (const std::int32_t branches : {20, 30, 50}) {
    cells.push_back({Kind::fewshot, 32, 8, 4000, branches});
  }
  return cells;
}

std::vector<Cell> decode_cells() {
  std::vector<Cell> cells;
  for (const auto& [heads, kv_heads] : head_shapes) {
    for (const std::int32_t prefix : {1024, 2048, 4096, 8192, 16384, 32768, 65536}) {
      cells.push_back({Kind::decode, heads, kv_heads, prefix, 1});
    }
  }
  return cells;
}

std::vector<Cell> prefill_cells() {
  std::vector<Cell> cells;
  for (const auto& [heads, kv_heads] : head_shapes) {
    for (const std::int32_t prefix : {0, 4096, 16384}) {
      for (const std::int32_t rows : {256, 512}) {
        cells.push_back({Kind::prefill, heads, kv_heads, prefix, rows});
      }
    }
  }
  return cells;
}

std::vector<Cell> forest_cells() {
  constexpr std::pair<std::int32_t, std::int32_t> models[] = {{32, 32}, {32, 8}, {64, 8}};
  std::vector<Cell> cells;
  for (const auto& [heads, kv_heads] : models) {
    for (const std::int32_t texts : {8, 16, 32, 64}) {
      for (const std::int32_t prefix : {200, 400, 1024, 4096}) {
        for (const std::int32_t rows : {1, 4, 8, 16}) {
          cells.push_back({Kind::forest, heads, kv_heads, texts * prefix, texts * rows, texts});
        }
      }
    }
  }
  return cells;
}

std::vector<Cell> shared_cells() {
  std::vector<Cell> cells;
  for (const auto& heads : {std::pair{32, 32}, {32, 8}}) {
    const auto add = [&](std::vector<NodeLevel> levels, std::int32_t texts, std::int32_t tokens,
                         std::int32_t rows) {
      cells.push_back(shared_cell(heads, std::move(levels), texts, tokens, rows));
    };
    // Samples of one prompt, plain and with trees; few-shot questions (DeFT); FlashForge's two
    // levels, and its binary tree of six.
    for (const std::int32_t rows : {1, 4}) add({{1, 2048}}, 64, 128, rows);
    for (const std::int32_t texts : {20, 30, 50}) add({{1, 4000}}, texts, 400, 1);
    add({{1, 120000}}, 16, 1200, 1);
    add({{1, 4000}, {2, 4000}, {4, 4000}, {8, 4000}, {16, 4000}}, 32, 4000, 1);
    // A preamble for all, eight prompts behind it, eight samples of each with trees.
    add({{1, 512}, {8, 512}}, 64, 128, 4);
  }
  return cells;
}

std::vector<Cell> fasttree_cells() {
  // The last level is the texts.
  const std::vector<std::vector<NodeLevel>> trees = {
      {{1, 8}, {2, 256}, {64, 32}},
      {{1, 8}, {4, 256}, {256, 32}},
      {{1, 8}, {4, 256}, {8, 256}, {256, 32}},
      {{1, 256}, {256, 32}},
      {{1, 2048}, {1024, 32}},
      {{1, 1024}, {16, 256}, {64, 32}},
      {{1, 1024}, {4, 256}, {16, 128}, {512, 32}},
      {{1, 256}, {4, 8}, {16, 256}, {64, 64}, {256, 32}, {1024, 256}},
      {{1, 4000}, {10, 400}},
      {{1, 16}, {2, 16}, {4, 16}, {8, 16}, {16, 16}, {32, 16}, {64, 16}, {128, 16}, {1024, 16}},
      {{1, 256}, {2, 128}, {4, 64}, {8, 16}, {16, 16}, {32, 16}, {64, 16}, {128, 16}, {1024, 16}},
      {{1, 256}, {8, 128}, {16, 64}, {32, 16}, {64, 16}, {128, 16}, {1024, 16}},
      {{1, 256}, {8, 128}, {16, 64}, {32, 16}, {64, 16}, {256, 16}, {1024, 16}},
      {{1, 256}, {16, 128}, {32, 64}, {64, 16}, {128, 16}, {1024, 16}},
      {{1, 256}, {16, 128}, {32, 64}, {64, 16}, {256, 16}, {1024, 16}},
  };
  std::vector<Cell> cells;
  for (const auto& heads : {std::pair{16, 1}, {32, 8}, {32, 32}}) {
    for (const std::vector<NodeLevel>& tree : trees) {
      const auto [texts, tokens] = tree.back();
      cells.push_back(shared_cell(heads, {tree.begin(), tree.end() - 1}, texts, tokens, 1));
    }
  }
  return cells;
}

std::vector<Cell> rule_cells() {
  std::vector<Cell> cells;
  const auto add = [&](Cell cell, std::int32_t dim, std::int32_t window, float soft_cap) {
    cell.head_dim = dim;
    cell.window = window;
    cell.soft_cap = soft_cap;
    cells.push_back(cell);
  };
  const Cell verify{Kind::verify, 32, 8, 16384, 64}, prefill{Kind::prefill, 32, 8, 16384, 512};
  for (const auto& [window, soft_cap] :
       {std::pair{0, 0.0f}, {0, 50.0f}, {4096, 0.0f}, {1024, 0.0f}}) {
    add(verify, 128, window, soft_cap);
    add(prefill, 128, window, soft_cap);
  }
  add({Kind::verify, 32, 8, 65536, 16}, 128, 4096, 0.0f);
  add({Kind::decode, 32, 8, 65536, 1}, 128, 4096, 0.0f);
  add({Kind::forest, 32, 8, 16 * 4096, 16 * 4, 16}, 128, 1024, 0.0f);
  // As Phi-3 mini, Gemma 3 and Gemma 2.
  add({Kind::verify, 32, 32, 4096, 32}, 96, 2047, 0.0f);
  add({Kind::prefill, 32, 32, 4096, 512}, 96, 2047, 0.0f);
  for (const std::int32_t window : {0, 1024}) {
    for (const std::int32_t prefix : {16384, 65536}) {
      add({Kind::verify, 16, 8, prefix, 32}, 256, window, 0.0f);
      if (window == 0) add({Kind::decode, 16, 8, prefix, 1}, 256, window, 0.0f);
    }
    add({Kind::prefill, 16, 8, 16384, 512}, 256, window, 0.0f);
  }
  add({Kind::verify, 16, 8, 16384, 32}, 256, 0, 50.0f);
  add({Kind::prefill, 16, 8, 16384, 512}, 256, 0, 50.0f);
  return cells;
}

std::vector<Cell> filtered(const std::vector<Cell>& cells, std::string_view filter) {
  if (filter.empty()) return cells;
  const auto words = split(filter, ',', filter.size() + 1);
  std::vector<Cell> chosen;
  std::copy_if(cells.begin(), cells.end(), std::back_inserter(chosen), [&](const Cell& cell) {
    const std::string name = cell.name() + "/";
    return std::any_of(words.begin(), words.end(),
                       [&](std::string_view word) { return name.find(word) != std::string::npos; });
  });
  return chosen;
}

int name_width(const std::vector<Cell>& cells) {
  std::size_t width = 4;
  for (const Cell& cell : cells) width = std::max(width, cell.name().size());
  return static_cast<int>(width);
}

Cost cost_of(const Cell& cell) {
  const double rows = cell.rows;
  const double own = static_cast<double>(cell.prefix) / cell.texts;
  const double before = own + cell.above();
  double pairs = rows * before;
  for (const ForestNode& node : cell.nodes) {
    pairs += static_cast<double>(node.rows.end - node.rows.begin) * node.tokens;
  }
  if (cell.kind == Kind::decode || cell.kind == Kind::prefill) pairs += rows * (rows + 1.0) / 2.0;
  if (cell.window > 0) pairs = std::min(pairs, rows * cell.window);
  const double unseen = cell.window > 0 ? std::max(before - cell.window + 1, 0.0) : 0.0;
  const double tokens = cell.shared() + cell.tail() - cell.texts * unseen;
  Cost cost;
  cost.flops = 4.0 * cell.heads * cell.head_dim * pairs;
  cost.bytes =
      bf16_bytes * cell.head_dim * (2.0 * tokens * cell.kv_heads + 2.0 * rows * cell.heads);
  return cost;
}

double bytes_us(const Cost& cost, const Ceilings& ceilings) {
  return 1e6 * cost.bytes / ceilings.bytes_per_second;
}

double flops_us(const Cost& cost, const Ceilings& ceilings) {
  return 1e6 * cost.flops / ceilings.flops_per_second;
}

double bound_us(const Cost& cost, const Ceilings& ceilings) {
  return std::max(bytes_us(cost, ceilings), flops_us(cost, ceilings));
}

double target_us(const Cost& cost, const Ceilings& ceilings) {
  return 4.0 + std::max(bytes_us(cost, ceilings) / 0.92, flops_us(cost, ceilings) / 0.70);
}

double forest_target_us(const Cost& cost, const Ceilings& ceilings) {
  return 9.0 + std::max(bytes_us(cost, ceilings) / 0.85, flops_us(cost, ceilings) / 0.65);
}

std::vector<Anchor> read_anchors(std::string_view csv) {
  std::vector<Anchor> anchors;
  bool header = true;
  for (const std::string_view line : split(csv, '\n', csv.size() + 1)) {
    if (line.empty() || line.front() == '#') continue;
    if (std::exchange(header, false)) continue;
    Anchor anchor;
    if (!parse_anchor(line, anchor)) {
      throw_failure(cat("anchors.csv: cannot read the line ", quote(std::string(line))));
    }
    anchors.push_back(std::move(anchor));
  }
  return anchors;
}

std::vector<Anchor> committed_anchors() { return read_anchors(anchors_csv); }

std::optional<Anchor> anchor_of(const std::vector<Anchor>& anchors, const Cell& cell) {
  for (const Anchor& anchor : anchors) {
    if (anchor.cell.name() == cell.name()) return anchor;
  }
  return std::nullopt;
}

}  // namespace coppice::bench
