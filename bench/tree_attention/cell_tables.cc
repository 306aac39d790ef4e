#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/error.h"
#include "cli/terminal.h"
#include "library_attention.h"
#include "parts.h"
#include "phase_times.h"
#include "traced_attention.h"

namespace coppice::bench {
namespace {

constexpr std::uint32_t workload_seed = 20;

constexpr std::uint32_t sampling_seed = 21;

struct Measured {
  Timing timing;
  double error = 0.0;
  RangeTiles tiles;
  std::optional<PhaseTimes> phases;  ///< where the kernel tells
};

Measured measure(const Bench& bench, const Cell& cell, const PageOrder& order = {}) {
  const Workload work = make_workload(cell, workload_seed, order);
  const InputSets inputs(work, Bench::rotated_bytes, bench.stream);
  LibraryAttention attention(inputs, bench.blocks, bench.stream);
  inputs.poison_output();
  Measured measured;
  measured.timing = time_replays(
      inputs.sets(), bench.samples(), [&](std::int32_t set) { attention.queue(set); },
      bench.stream);
  measured.error = inputs.error(inputs.sets() - 1, sampling_seed);
  measured.tiles = attention.tiles();
  const bool traced = cell.head_dim == traced_head_dim && !cuda::has_rule(inputs.rule());
  if (attention.takes_ranges() && traced) {
    measured.phases = phase_times(inputs, attention, bench.blocks.ranges, bench.stream);
  }
  return measured;
}

void print_header(bool anchors) {
  std::printf("%-24s %8s %5s %8s", "cell", "ours us", "+-", "in pass");
  if (anchors) std::printf(" %9s %6s", "theirs us", "ratio");
  std::printf(" %8s %-5s %5s", "bound us", "by", "ours");
  if (anchors) std::printf(" %6s", "theirs");
  std::printf(" %9s %-4s %7s%s\n", "target us", "met", "error",
              anchors ? "  theirs, and where the time goes if the target is missed" : "");
}

/// The row of one cell, in the table and in the report.
void print_row(Bench& bench, const Cell& cell, const Measured& measured,
               const std::optional<Anchor>& anchor, bool anchor_columns) {
  const Cost cost = cost_of(cell);
  const Timing& timing = measured.timing;
  const double bound = bound_us(cost, bench.ceilings);
  const double target = target_us(cost, bench.ceilings);
  const bool by_flops = flops_us(cost, bench.ceilings) > bytes_us(cost, bench.ceilings);
  const bool met = timing.median_us <= target;
  const bool right = measured.error <= error_limit;
  if (!right) bench.report.fail();

  std::printf("%-24s %8.1f %4.0f%% %8.1f", cell.name().c_str(), timing.median_us,
              100.0 * timing.spread(), timing.in_pass_us);
  if (anchor_columns) {
    if (anchor) {
      std::printf(" %9.1f %5.2fx", anchor->best_us, anchor->best_us / timing.median_us);
    } else {
      std::printf(" %9s %6s", "-", "-");
    }
  }
  std::printf(" %8.1f %-5s %4.0f%%", bound, by_flops ? "flops" : "bytes",
              100.0 * bound / timing.median_us);
  if (anchor_columns) std::printf(" %5.0f%%", anchor ? 100.0 * bound / anchor->best_us : 0.0);
  std::printf(" %9.1f %-4s %7.1e", target, met ? "yes" : "no", measured.error);
  if (anchor) std::printf("  %-33s", anchor->by.c_str());
  if (!met && measured.phases) {
    std::printf("  %.1f start, %.1f tiles, %.1f exchange", measured.phases->start_us(),
                measured.phases->tiles_us(), measured.phases->exchange_us());
  }
  std::printf("%s\n", right ? "" : "  FAILED");
  std::fflush(stdout);

  Json fields = json_of(timing);
  fields["error"] = measured.error;
  fields["right"] = right;
  fields["bound_us"] = bound;
  fields["bound_by"] = by_flops ? "flops" : "bytes";
  fields["target_us"] = target;
  fields["met"] = met;
  if (measured.phases) {
    fields["start_us"] = measured.phases->start_us();
    fields["tiles_us"] = measured.phases->tiles_us();
    fields["exchange_us"] = measured.phases->exchange_us();
  }
  if (anchor) {
    fields["theirs_us"] = anchor->best_us;
    fields["theirs_by"] = anchor->by;
  }
  bench.report.add(name_of(cell.kind), cell.name(), "coppice", fields);
}

struct Tally {
  std::vector<double> ratios;
  int cells = 0;
  int met = 0;
};

Tally run_table(Bench& bench, const std::vector<Cell>& cells, bool anchor_columns) {
  Tally tally;
  cli::ProgressLine progress(bench.progress);
  print_header(anchor_columns);
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const Cell& cell = cells[i];
    progress.show(cell.name(), static_cast<double>(i) / static_cast<double>(cells.size()));
    const Measured measured = measure(bench, cell);
    progress.clear();
    const auto anchor = anchor_of(bench.anchors, cell);
    print_row(bench, cell, measured, anchor, anchor_columns);
    ++tally.cells;
    if (measured.timing.median_us <= target_us(cost_of(cell), bench.ceilings)) ++tally.met;
    if (anchor) tally.ratios.push_back(anchor->best_us / measured.timing.median_us);
  }
  return tally;
}

void print_target_line(const Tally& tally) {
  std::printf("target met in %d of %d cells\n", tally.met, tally.cells);
}

}  // namespace

void run_verify_table(Bench& bench) {
  std::printf(
      "\nverification: one layer, bf16 KV in shuffled pages of 16; theirs: anchors.csv; shares of "
      "this run's bound\n");
  const Tally tally = run_table(bench, filtered(verify_cells(), bench.filter), true);
  if (tally.ratios.empty()) return;
  const auto ahead = std::count_if(tally.ratios.begin(), tally.ratios.end(),
                                   [](double ratio) { return ratio > 1.0; });
  std::printf("ahead of the best of theirs in %d of %d cells, median ratio %.2f\n",
              static_cast<int>(ahead), static_cast<int>(tally.ratios.size()), median(tally.ratios));
  print_target_line(tally);
  bench.report.set("verify", {{"cells", tally.cells},
                              {"ahead", ahead},
                              {"median_ratio", median(tally.ratios)},
                              {"targets_met", tally.met}});
}

void run_decode_table(Bench& bench) {
  std::printf("\nplain decoding: one query\n");
  print_target_line(run_table(bench, filtered(decode_cells(), bench.filter), false));
}

void run_prefill_table(Bench& bench) {
  std::printf("\nchunked prefill: a causal chunk over a prefix (visible pairs count)\n");
  print_target_line(run_table(bench, filtered(prefill_cells(), bench.filter), false));
}

void run_forest_table(Bench& bench) {
  std::vector<Cell> all = forest_cells();
  for (const Cell& cell : shared_cells()) all.push_back(cell);
  for (const Cell& cell : fasttree_cells()) all.push_back(cell);
  all.insert(all.end(), bench.snapshots.begin(), bench.snapshots.end());
  const std::vector<Cell> cells = filtered(all, bench.filter);
  const int width = name_width(cells);
  std::printf(
      "\nforests: texts x tokens before their trees, texts x rows, behind shared levels (s) of "
      "nodes x tokens; us in a pass with pages of 16 shuffled, and with slots shuffled; share of "
      "the bound; begin: of a pass, on the host\n"
      "%-*s %8s %8s %8s %8s %6s %6s %8s %8s %9s %8s\n",
      width, "cell", "us", "in pass", "slots", "bound us", "share", "slots", "tiles", "begin us",
      "target us", "error");
  Tally tally;
  int near = 0;
  for (const Cell& cell : cells) {
    const Measured pages = measure(bench, cell), slots = measure(bench, cell, {16, true, true});
    const Workload work = make_workload(cell, workload_seed);
    const InputSets inputs(work, 0.0, bench.stream);
    const double begin_us = LibraryAttention(inputs, bench.blocks, bench.stream).begin_us(101);
    const Cost cost = cost_of(cell);
    const double bound = bound_us(cost, bench.ceilings);
    const double in_pass = pages.timing.in_pass_us, in_slots = slots.timing.in_pass_us;
    const double target = forest_target_us(cost, bench.ceilings);
    ++tally.cells;
    if (in_pass <= target) ++tally.met;
    if (in_pass <= 1.25 * target) ++near;
    const double error = std::max(pages.error, slots.error);
    const bool right = error <= error_limit;
    if (!right) bench.report.fail();
    std::printf("%-*s %8.1f %8.1f %8.1f %8.1f %5.0f%% %5.0f%% %8s %8.1f %9.1f %8.1e%s", width,
                cell.name().c_str(), pages.timing.median_us, in_pass, in_slots, bound,
                100.0 * bound / in_pass, 100.0 * bound / in_slots,
                cat(pages.tiles.rows, "x", pages.tiles.tokens).c_str(), begin_us, target, error,
                right ? "" : "  FAILED");
    if (pages.phases) {
      std::printf("  %.1f start, %.1f tiles, %.1f exchange", pages.phases->start_us(),
                  pages.phases->tiles_us(), pages.phases->exchange_us());
    }
    std::printf("\n");
    std::fflush(stdout);
    Json fields = json_of(pages.timing);
    fields["in_pass_slots_us"] = in_slots;
    fields["bound_us"] = bound;
    fields["target_us"] = target;
    fields["row_tile"] = pages.tiles.rows;
    fields["kv_tile"] = pages.tiles.tokens;
    fields["begin_us"] = begin_us;
    fields["error"] = error;
    fields["right"] = right;
    bench.report.add(name_of(cell.kind), cell.name(), "coppice", fields);
  }
  print_target_line(tally);
  std::printf("within 1.25 of it in %d\n", near);
}

void run_rule_table(Bench& bench) {
  std::printf(
      "\nrules: windows (w), soft caps (c) and heads of other sizes (d); us in a pass by this "
      "device's kernel and by the portable one; bound: what rows see, read once, or its products\n"
      "%-36s %8s %8s %8s %7s %8s %8s %-5s %6s %8s\n",
      "cell", "us", "in pass", "portable", "faster", "tiles", "bound us", "by", "share", "error");
  const ResidentBlocks usual = bench.blocks;
  for (const Cell& cell : filtered(rule_cells(), bench.filter)) {
    bench.blocks = cuda::prepare_attention(cell.head_dim);
    const Measured here = measure(bench, cell);
    bench.blocks.ranges = 0;
    const Measured portable = measure(bench, cell);
    const Cost cost = cost_of(cell);
    const double bound = bound_us(cost, bench.ceilings), us = here.timing.in_pass_us;
    const bool by_flops = flops_us(cost, bench.ceilings) > bytes_us(cost, bench.ceilings);
    const double error = std::max(here.error, portable.error);
    const bool right = error <= error_limit;
    if (!right) bench.report.fail();
    std::printf(
        "%-36s %8.1f %8.1f %8.1f %6.2fx %8s %8.1f %-5s %5.0f%% %8.1e%s\n", cell.name().c_str(),
        here.timing.median_us, us, portable.timing.in_pass_us, portable.timing.in_pass_us / us,
        here.tiles.rows == 0 ? "items" : cat(here.tiles.rows, "x", here.tiles.tokens).c_str(),
        bound, by_flops ? "flops" : "bytes", 100.0 * bound / us, error, right ? "" : "  FAILED");
    std::fflush(stdout);
    Json fields = json_of(here.timing);
    fields["portable_in_pass_us"] = portable.timing.in_pass_us;
    fields["row_tile"] = here.tiles.rows;
    fields["kv_tile"] = here.tiles.tokens;
    fields["bound_us"] = bound;
    fields["error"] = error;
    fields["right"] = right;
    bench.report.add("rules", cell.name(), "coppice", fields);
  }
  bench.blocks = usual;
}

void run_planning_table(Bench& bench) {
  std::printf(
      "\nhost time before a pass's first kernel, us (medians): order and intervals of the tree, "
      "plan, CudaPass::begin (its own plan, copies queued; the prefix is as before)\n"
      "%-24s %8s %8s %8s %14s\n",
      "cell", "order", "plan", "begin", "order + begin");
  for (const std::int32_t prefix : {4096, 65536}) {
    for (const std::int32_t tree : {32, 64, 128, 256, 768}) {
      const Cell cell{Kind::verify, 32, 8, prefix, tree};
      if (filtered({cell}, bench.filter).empty()) continue;
      const Workload work = make_workload(cell, workload_seed);
      const InputSets inputs(work, 0.0, bench.stream);
      LibraryAttention attention(inputs, bench.blocks, bench.stream);
      const HostPlanning host = attention.host_planning(bench.quick ? 51 : 501);
      std::printf("%-24s %8.2f %8.2f %8.2f %14.2f\n", cell.name().c_str(), host.order_us,
                  host.plan_us, host.begin_us, host.order_us + host.begin_us);
      bench.report.add(
          "planning", cell.name(), "coppice",
          {{"order_us", host.order_us}, {"plan_us", host.plan_us}, {"begin_us", host.begin_us}});
    }
  }
}

}  // namespace coppice::bench
