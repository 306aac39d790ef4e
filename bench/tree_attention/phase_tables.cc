#include <cstdio>

#include "bench/timing.h"
#include "parts.h"
#include "phase_times.h"
#include "traced_attention.h"

namespace coppice::bench {
namespace {

constexpr std::uint32_t workload_seed = 20;

using cuda::hopper::phases;

constexpr const char* phase_names[phases] = {"begun",     "planned",     "queries",   "first keys",
                                             "all tiles", "handed over", "all there", "joined"};

void print_empty_launch(Bench& bench) {
  const Timing timing = time_replays(
      32, bench.samples(), [&](std::int32_t) { queue_nothing(bench.blocks.ranges, bench.stream); },
      bench.stream);
  std::printf("\nan empty kernel, launched alike: %.1f us, in pass %.1f us", timing.median_us,
              timing.in_pass_us);
  bench.report.set("empty_kernel", json_of(timing));
}

}  // namespace

void run_phase_table(Bench& bench) {
  if (bench.blocks.ranges == 0) return;
  print_empty_launch(bench);
  std::printf(
      "\nwhen blocks get where, us from the first block's beginning: half of the blocks / the "
      "last; \"before\": from the former launch's end to this beginning\n%-24s %7s",
      "cell", "before");
  for (const char* name : phase_names) std::printf(" %13s", name);
  std::printf("\n");
  std::vector<Cell> cells = verify_cells();
  for (const Cell& cell : decode_cells()) cells.push_back(cell);
  for (const Cell& cell : filtered(cells, bench.filter)) {
    const Workload work = make_workload(cell, workload_seed);
    const InputSets inputs(work, Bench::rotated_bytes, bench.stream);
    LibraryAttention attention(inputs, bench.blocks, bench.stream);
    if (!attention.takes_ranges()) continue;
    const PhaseTimes times = phase_times(inputs, attention, bench.blocks.ranges, bench.stream);
    std::printf("%-24s %7.1f", cell.name().c_str(), times.before_us);
    for (std::size_t phase = 0; phase < phases; ++phase) {
      std::printf(" %6.1f/%6.1f", times.middle_us[phase], times.last_us[phase]);
    }
    std::printf("\n");
    std::fflush(stdout);
    bench.report.add("phases", cell.name(), "coppice",
                     {{"before_us", times.before_us},
                      {"end_us", times.end_us},
                      {"middle_us", times.middle_us},
                      {"last_us", times.last_us}});
  }
}

}  // namespace coppice::bench
