// How well work is divided: against the bound of FlashForge's equation 4 by a measured cost table,
// and against every other division into ranges (its section 6.3).
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <set>
#include <tuple>

#include "base/error.h"
#include "cli/terminal.h"
#include "library_attention.h"
#include "parts.h"
#include "range_costs.h"

namespace coppice::bench {
namespace {

constexpr std::uint32_t workload_seed = 20;
constexpr std::int32_t finalists = 3;
constexpr double most_over_bound = 1.10, most_over_fixed = 1.02, most_cost_error = 0.10;

std::vector<RangeTiles> all_tiles() {
  std::vector<RangeTiles> tiles;
  for (const std::int32_t rows : range_row_tiles) {
    for (const std::int32_t tokens : {range_half_tokens, range_tile_tokens}) {
      if (range_tiles_exist({rows, tokens})) tiles.push_back({rows, tokens});
    }
  }
  return tiles;
}

ResidentBlocks asking(ResidentBlocks blocks, RangeTiles tiles, std::int32_t gang,
                      std::int32_t gangs) {
  blocks.range_tiles = tiles;
  blocks.range_gang = gang;
  blocks.range_gangs = gangs;
  return blocks;
}

/// us in a pass of one piece of `rows` rows and `tokens` tokens for each block.
double piece_us(const Bench& bench, RangeTiles tiles, std::int32_t rows, std::int32_t tokens) {
  const std::int32_t heads = bench.blocks.ranges;
  const Cell cell{Kind::verify, heads, heads, tokens - rows, rows};
  const Workload work = make_workload(cell, workload_seed);
  const InputSets inputs(work, Bench::rotated_bytes, bench.stream);
  LibraryAttention attention(inputs, asking(bench.blocks, tiles, 1, heads), bench.stream);
  return time_replays(
             inputs.sets(), 5, [&](std::int32_t set) { attention.queue(set); }, bench.stream)
      .in_pass_us;
}

PieceCosts measured_costs(Bench& bench, cli::ProgressLine& progress) {
  PieceCosts costs;
  std::printf("us of a piece in a block, by its tokens\n%-10s", "tiles");
  for (const std::int32_t tokens : PieceCosts::lengths) std::printf(" %8d", tokens);
  std::printf("\n");
  for (const RangeTiles tiles : all_tiles()) {
    std::array<double, PieceCosts::lengths.size()> us{};
    for (std::size_t i = 0; i < us.size(); ++i) {
      progress.show("pieces", static_cast<double>(i) / static_cast<double>(us.size()));
      us[i] = piece_us(bench, tiles, tiles.rows, PieceCosts::lengths[i]);
    }
    progress.clear();
    costs.set(tiles, us);
    const std::string name = cat(tiles.rows, "x", tiles.tokens);
    std::printf("%-10s", name.c_str());
    for (const double one : us) std::printf(" %8.1f", one);
    std::printf("\n");
    std::fflush(stdout);
    bench.report.add("divisions", name, "piece costs",
                     {{"tokens", PieceCosts::lengths}, {"us", us}});
  }
  return costs;
}

/// Pieces whose costs were not measured, against what the table says.
void check_costs(Bench& bench, const PieceCosts& costs) {
  std::vector<double> errors;
  for (const RangeTiles tiles : all_tiles()) {
    for (const std::int32_t rows : {tiles.rows / 4 + 1, tiles.rows}) {
      for (const std::int32_t tokens : {320, 1536, 6000, 12000}) {
        const double us = piece_us(bench, tiles, rows, tokens);
        errors.push_back(std::abs(costs.us(tiles, tokens) / us - 1.0));
      }
    }
  }
  const auto within = std::count_if(errors.begin(), errors.end(),
                                    [](double error) { return error <= most_cost_error; });
  const double worst = *std::max_element(errors.begin(), errors.end());
  std::printf("pieces in between: the table is within 10%% in %d of %d, the worst %.0f%%\n",
              static_cast<int>(within), static_cast<int>(errors.size()), 100.0 * worst);
  bench.report.set(
      "piece_costs",
      {{"checked", errors.size()}, {"within_a_tenth", within}, {"worst_error", worst}});
}

struct Timed {
  RangeTiles tiles;
  std::int32_t gang, gangs;
  double us;
};

std::string name_of(const Timed& division) {
  return cat(division.tiles.rows, "x", division.tiles.tokens, " ", division.gang, "x",
             division.gangs);
}

/// Every tile with gangs of some sizes, each unit cut into 1 to 16 pieces. Calls visit(attention)
/// with each division once.
template <typename Visit>
void for_each_division(const Bench& bench, const InputSets& inputs, Visit visit) {
  std::set<std::tuple<RangeTiles, std::int32_t, std::int32_t>> seen;
  const auto attempt = [&](RangeTiles tiles, std::int32_t gang, std::int32_t gangs) {
    LibraryAttention attention(inputs, asking(bench.blocks, tiles, gang, gangs), bench.stream);
    const RangePlan plan = attention.division().plan;
    if (seen.insert({plan.tiles, plan.gang, plan.gangs}).second) visit(attention, plan);
    return plan;
  };
  for (const RangeTiles tiles : all_tiles()) {
    if (inputs.work().cell.group() > tiles.rows) continue;
    for (const std::int32_t gang : {1, 2, 4, 8, 12}) {
      const RangePlan plan = attempt(tiles, gang, 0);
      if (plan.gang < gang) break;
      const std::int32_t units = plan.kv_heads * plan.row_groups;
      const std::int32_t most = bench.blocks.ranges / plan.gang;
      for (const std::int32_t parts : {1, 2, 3, 4, 8, 16}) {
        const auto waves = static_cast<std::int32_t>(ceil_div(units * parts, most));
        attempt(tiles, gang, static_cast<std::int32_t>(ceil_div(units * parts, waves)));
      }
    }
  }
}

}  // namespace

void run_division_table(Bench& bench) {
  if (bench.blocks.ranges == 0) return;
  cli::ProgressLine progress(bench.progress);
  std::printf(
      "\ndivisions of work into ranges (FlashForge, sections 5 and 6.3). us in a pass as planned, "
      "and of the best of all divisions tried: row tile x KV tile, gang x gangs; by the table of "
      "pieces, what the slowest block takes, and the bound of equation 4\n");
  const PieceCosts costs = measured_costs(bench, progress);
  check_costs(bench, costs);
  int cells = 0, near_best = 0, near_bound = 0;
  std::vector<Cell> all = shared_cells();
  for (const std::int32_t texts : {8, 64}) {
    for (const std::int32_t rows : {1, 4}) {
      all.push_back({Kind::forest, 32, 8, texts * 1024, texts * rows, texts});
    }
  }
  for (const Cell& cell : fasttree_cells()) all.push_back(cell);
  all.insert(all.end(), bench.snapshots.begin(), bench.snapshots.end());
  const std::vector<Cell> chosen_cells = filtered(all, bench.filter);
  const int width = name_width(chosen_cells);
  std::printf("%-*s %8s %-16s %8s %-16s %6s %9s %9s %6s %8s\n", width, "cell", "planned", "",
              "best", "", "ratio", "slowest", "eq. 4", "ratio", "error");
  for (const Cell& cell : chosen_cells) {
    const Workload work = make_workload(cell, workload_seed);
    const InputSets inputs(work, Bench::rotated_bytes, bench.stream);
    LibraryAttention planned(inputs, bench.blocks, bench.stream);
    if (!planned.takes_ranges()) continue;
    const RangeDivision division = planned.division();
    double least = least_us(costs, division.plan.tiles, division.units(), bench.blocks.ranges);
    std::vector<Timed> tried;
    for_each_division(bench, inputs, [&](LibraryAttention& attention, const RangePlan& plan) {
      const auto all_sets = [&] {
        for (std::int32_t set = 0; set < inputs.sets(); ++set) attention.queue(set);
      };
      const double us = 1e6 * median_seconds(3, all_sets, bench.stream) / inputs.sets();
      tried.push_back({plan.tiles, plan.gang, plan.gangs, us});
      least = std::min(
          least, least_us(costs, plan.tiles, attention.division().units(), bench.blocks.ranges));
    });
    progress.clear();
    std::sort(tried.begin(), tried.end(),
              [](const Timed& a, const Timed& b) { return a.us < b.us; });
    Json all_tried = Json::array();  // one after the other, not in passes
    for (const Timed& one : tried) {
      all_tried.push_back({{"division", name_of(one)}, {"us", one.us}});
    }
    // The best ones and the plan again, each as passes run it, the plan before and behind.
    const auto in_pass = [&](LibraryAttention& attention) {
      return time_replays(
                 inputs.sets(), bench.samples(), [&](std::int32_t set) { attention.queue(set); },
                 bench.stream)
          .in_pass_us;
    };
    inputs.poison_output();
    const double before = in_pass(planned);
    const double error = inputs.error(inputs.sets() - 1, workload_seed);
    if (!(error <= error_limit)) bench.report.fail();
    if (std::ssize(tried) > finalists) tried.resize(finalists);
    for (Timed& one : tried) {
      LibraryAttention attention(inputs, asking(bench.blocks, one.tiles, one.gang, one.gangs),
                                 bench.stream);
      one.us = in_pass(attention);
    }
    const double us = 0.5 * (before + in_pass(planned));
    const Timed best = *std::min_element(
        tried.begin(), tried.end(), [](const Timed& a, const Timed& b) { return a.us < b.us; });
    const Timed chosen{division.plan.tiles, division.plan.gang, division.plan.gangs, us};
    const double slowest = makespan_us(costs, division);
    ++cells;
    near_best += us <= most_over_fixed * best.us ? 1 : 0;
    near_bound += slowest <= most_over_bound * least ? 1 : 0;
    std::printf("%-*s %8.1f %-16s %8.1f %-16s %6.3f %9.1f %9.1f %6.3f %8.1e\n", width,
                cell.name().c_str(), us, name_of(chosen).c_str(), best.us, name_of(best).c_str(),
                us / best.us, slowest, least, slowest / least, error);
    std::fflush(stdout);
    bench.report.add("divisions", cell.name(), "coppice",
                     {{"in_pass_us", us},
                      {"division", name_of(chosen)},
                      {"best_us", best.us},
                      {"best_division", name_of(best)},
                      {"over_best", us / best.us},
                      {"slowest_us", slowest},
                      {"equation_4_us", least},
                      {"over_equation_4", slowest / least},
                      {"tried", all_tried},
                      {"error", error}});
  }
  std::printf(
      "within 2%% of the best division in %d of %d cells, within 1.10 of equation 4 in %d\n",
      near_best, cells, near_bound);
}

}  // namespace coppice::bench
