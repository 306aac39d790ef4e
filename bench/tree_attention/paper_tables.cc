// DeFT's comparison: the ways of cutting the work, at the sizes of its tables and over forests.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "item_attention.h"
#include "library_attention.h"
#include "parts.h"

namespace coppice::bench {
namespace {

constexpr std::uint32_t workload_seed = 23;

/// Attention seconds in DeFT's table 6 (Llama3-8B on an A100).
struct PaperTimes {
  Cell cell;
  double radix, node, node_chunk, flatten;
};

constexpr PaperTimes paper_times[] = {
    {{Kind::verify, 32, 8, 4096, 32}, 25.73, 34.59, 14.54, 13.15},
    {{Kind::verify, 32, 8, 4096, 64}, 40.47, 34.41, 20.28, 16.79},
    {{Kind::verify, 32, 8, 4096, 128}, 76.10, 34.96, 32.57, 24.46},
    {{Kind::verify, 32, 8, 4096, 256}, 145.43, 41.78, 57.26, 40.56},
    {{Kind::fewshot, 32, 8, 4000, 20}, 5.99, 10.59, 8.52, 3.47},
    {{Kind::fewshot, 32, 8, 4000, 30}, 7.30, 10.62, 9.69, 4.07},
    {{Kind::fewshot, 32, 8, 4000, 50}, 9.96, 10.85, 13.45, 5.87},
};

class PaperRows {
 public:
  PaperRows(Bench& bench, const Cell& cell) : bench_(bench), cell_(cell) {}

  /// `paper_speed_up`: 0 where the papers have no such cell.
  void print(const char* method, const CutResult& result, double paper_speed_up) {
    const double us = result.timing.median_us;
    if (radix_us_ == 0.0) radix_us_ = us;
    const bool right = result.error <= error_limit;
    if (!right) bench_.report.fail();
    const double once = 4.0 * (cell_.prefix + cell_.tail()) * cell_.kv_heads * cell_.head_dim;
    std::printf("%-34s %-22s", cell_.name().c_str(), method);
    if (result.cut > 0) {
      std::printf(" %5d", result.cut);
    } else {
      std::printf(" %5s", "-");
    }
    std::printf(" %8.1f %8.1f %7.2fx", us, result.timing.in_pass_us, radix_us_ / us);
    if (paper_speed_up > 0.0) {
      std::printf(" %6.2fx", paper_speed_up);
    } else {
      std::printf(" %7s", "-");
    }
    if (result.group_kv_bytes > 0.0) {
      std::printf(" %8.1f %7.2f %7.2f", 1e-6 * result.group_kv_bytes, result.group_kv_bytes / once,
                  result.block_kv_bytes / once);
    } else {
      std::printf(" %8.1f %7.2f %7s", 1e-6 * once, 1.0, "-");
    }
    std::printf(" %7.1e%s\n", result.error, right ? "" : "  FAILED");
    std::fflush(stdout);
    Json fields = json_of(result.timing);
    fields["cut"] = result.cut;
    fields["over_radix"] = radix_us_ / us;
    fields["paper_over_radix"] = paper_speed_up;
    fields["group_kv_bytes"] = result.group_kv_bytes;
    fields["block_kv_bytes"] = result.block_kv_bytes;
    fields["error"] = result.error;
    bench_.report.add("papers", cell_.name(), method, fields);
  }

 private:
  Bench& bench_;
  const Cell& cell_;
  double radix_us_ = 0.0;
};

}  // namespace

void run_paper_table(Bench& bench) {
  std::printf(
      "\nDeFT's comparison. All but the last row of a cell run one kernel (mma.sync tiles, paged) "
      "on different lists of work, each at the best of several cuts; the paper's speed-ups are "
      "an A100's. KV: MB that the cut reads, as multiples of K and V once by its groups and by "
      "the kernel's blocks (row tiles reread, mostly from the cache).\n"
      "%-34s %-22s %5s %8s %8s %8s %7s %8s %7s %7s %7s\n",
      "cell", "method", "cut", "us", "in pass", "/ radix", "paper", "KV MB", "groups", "blocks",
      "error");
  const auto compare = [&](const Cell& cell, const PaperTimes* paper) {
    if (filtered({cell}, bench.filter).empty()) return;
    const Workload work = make_workload(cell, workload_seed);
    const InputSets inputs(work, Bench::rotated_bytes, bench.stream);
    PaperRows rows(bench, cell);
    const std::vector<CutLength> cuts = bench.quick
                                            ? std::vector<CutLength>{256, 1024}
                                            : std::vector<CutLength>{128, 256, 512, 1024, 2048};
    const std::vector<CutLength> radix_cuts =
        bench.quick ? cuts : std::vector<CutLength>{0, 2200, 1100, 512, 256};
    const auto best = [&](const MakePlan& make_plan, const std::vector<CutLength>& of) {
      return run_best_cut(inputs, make_plan, of, bench.samples(), bench.stream);
    };
    const auto speed_up = [&](double PaperTimes::*method) {
      return paper == nullptr ? 0.0 : paper->radix / paper->*method;
    };
    rows.print("radix", best(plan_radix, radix_cuts), speed_up(&PaperTimes::radix));
    rows.print("DeFT-Node", best(plan_nodes, {0}), speed_up(&PaperTimes::node));
    rows.print("DeFT-Node-Chunk", best(plan_nodes, cuts), speed_up(&PaperTimes::node_chunk));
    rows.print("DeFT-Flatten", best(plan_flatten, cuts), speed_up(&PaperTimes::flatten));

    LibraryAttention attention(inputs, bench.blocks, bench.stream);
    inputs.poison_output();
    CutResult library;
    library.timing = time_replays(
        inputs.sets(), bench.samples(), [&](std::int32_t set) { attention.queue(set); },
        bench.stream);
    library.error = inputs.error(inputs.sets() - 1, workload_seed);
    rows.print("DeFT-Flatten, coppice", library, speed_up(&PaperTimes::flatten));
  };
  for (const PaperTimes& paper : paper_times) compare(paper.cell, &paper);
  for (const Cell& cell : shared_cells()) compare(cell, nullptr);
}

}  // namespace coppice::bench
