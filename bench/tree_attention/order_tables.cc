// DySpec's comparison (appendix C): orders of a tree's nodes, by the blocks of the mask that are
// not empty and by the time of a kernel that computes those alone.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "item_attention.h"
#include "library_attention.h"
#include "parts.h"

namespace coppice::bench {
namespace {

constexpr std::uint32_t workload_seed = 24;
constexpr std::int32_t paper_block = 32;

using MakeTree = TokenTree (*)(std::int32_t nodes, std::mt19937& random);

struct TreeKind {
  const char* name;
  MakeTree make;
};

constexpr TreeKind tree_kinds[] = {{"DySpec-like", dyspec_like_tree}, {"uniform", uniform_tree}};
constexpr RowOrder orders[] = {RowOrder::added, RowOrder::breadth_first, RowOrder::depth_first,
                               RowOrder::heavy_path};

void run_orders(Bench& bench, const TreeKind& kind, const Cell& cell) {
  const std::int32_t tile_queries = wide_item_rows / cell.group();
  for (const RowOrder order : orders) {
    std::mt19937 random(workload_seed);
    const TokenTree tree = kind.make(cell.rows, random);
    const Workload work = make_tree_workload(cell, tree, order, random);
    const InputSets inputs(work, Bench::rotated_bytes, bench.stream);
    const std::vector<CutLength> cuts =
        cell.prefix == 0 ? std::vector<CutLength>{0} : std::vector<CutLength>{0, 2048, 1024, 512};
    const CutResult result = run_best_cut(inputs, plan_blocks, cuts, bench.samples(), bench.stream);
    bool right = result.error <= error_limit;
    const std::int64_t paper_blocks = count_blocks(work.visibility, paper_block, paper_block);
    const std::int64_t tiles = count_blocks(work.visibility, tile_queries, block_tokens);
    std::printf("%-12s %-24s %-14s %9lld %9lld %9.1f", kind.name, cell.name().c_str(),
                name_of(order), static_cast<long long>(paper_blocks), static_cast<long long>(tiles),
                result.timing.median_us);
    Json fields = json_of(result.timing);
    fields["tree"] = kind.name;
    fields["blocks_32x32"] = paper_blocks;
    fields["blocks_tile"] = tiles;
    fields["cut"] = result.cut;
    fields["error"] = result.error;
    if (!work.tail.empty()) {
      LibraryAttention attention(inputs, bench.blocks, bench.stream);
      inputs.poison_output();
      const Timing timing = time_replays(
          inputs.sets(), bench.samples(), [&](std::int32_t set) { attention.queue(set); },
          bench.stream);
      right = right && inputs.error(inputs.sets() - 1, workload_seed) <= error_limit;
      std::printf(" %9.1f", timing.median_us);
      fields["coppice_us"] = timing.median_us;
    } else {
      std::printf(" %9s", "-");
    }
    if (!right) bench.report.fail();
    std::printf(" %7.1e%s\n", result.error, right ? "" : "  FAILED");
    std::fflush(stdout);
    bench.report.add("orders", cell.name(), name_of(order), fields);
  }
}

}  // namespace

void run_order_table(Bench& bench) {
  std::printf(
      "\norders of a tree's nodes: non-empty blocks of the tree's mask, 32 x 32 as DySpec counts "
      "(its table 5: 256 nodes 36 -> 22.5, 512: 135.5 -> 52.8, 1024: 490.2 -> 119.3, 2048: "
      "1654.5 -> 278.7) and as row tiles of 64 (query, head) x 64 tokens; time of the item kernel "
      "over those tiles, any mask; of coppice where the order gives intervals\n"
      "%-12s %-24s %-14s %9s %9s %9s %9s %7s\n",
      "tree", "cell", "order", "32 x 32", "tiles", "us", "coppice", "error");
  std::vector<Cell> cells;
  for (const std::int32_t size : {64, 256, 512, 768, 1024, 2048}) {
    cells.push_back({Kind::verify, 64, 64, 0, size});  // the heads of DySpec's measurement
  }
  for (const std::int32_t size : {64, 256, 768}) cells.push_back({Kind::verify, 32, 8, 4096, size});
  for (const TreeKind& kind : tree_kinds) {
    for (const Cell& cell : filtered(cells, bench.filter)) run_orders(bench, kind, cell);
  }
}

}  // namespace coppice::bench
