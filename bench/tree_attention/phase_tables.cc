#include <algorithm>
#include <cstdio>
#include <string>

#include "base/error.h"
#include "kernels/cuda/hopper_phases.h"
#include "library_attention.h"
#include "parts.h"
#include "timing.h"
#include "traced_attention.h"

namespace coppice::bench {
namespace {

using cuda::hopper::Phase;
using cuda::hopper::phases;

constexpr const char* phase_names[phases] = {"begun",     "planned",     "queries",   "first keys",
                                             "all tiles", "handed over", "all there", "joined"};

/// One launch's marks.
struct Launch {
  const std::uint64_t* marks;
  std::int32_t blocks;

  std::uint64_t at(std::int32_t block, int phase) const { return marks[block * phases + phase]; }
  std::uint64_t begin() const {
    std::uint64_t first = UINT64_MAX;
    for (std::int32_t b = 0; b < blocks; ++b) first = std::min(first, at(b, 0));
    return first;
  }
  std::uint64_t end() const {
    std::uint64_t last = 0;
    for (std::int32_t i = 0; i < blocks * phases; ++i) last = std::max(last, marks[i]);
    return last;
  }
  /// Microseconds from begin() of the blocks that met a phase, sorted.
  std::vector<double> times(int phase) const {
    std::vector<double> found;
    for (std::int32_t b = 0; b < blocks; ++b) {
      if (at(b, phase) != 0) found.push_back(1e-3 * static_cast<double>(at(b, phase) - begin()));
    }
    std::sort(found.begin(), found.end());
    return found;
  }
};

}  // namespace

void run_phase_table(Bench& bench) {
  if (bench.blocks.ranges == 0) return;
  for (const bool cooperative : {false, true}) {
    const Timing timing = time_replays(
        32, bench.samples(),
        [&](std::int32_t) { queue_nothing(bench.blocks.ranges, cooperative, bench.stream); },
        bench.stream);
    std::printf("\nan empty kernel, %s: %.1f us, in pass %.1f us",
                cooperative ? "cooperative" : "plain", timing.median_us, timing.in_pass_us);
  }
  std::printf(
      "\nwhen blocks get where, us from the first block's beginning: half of the blocks / the "
      "last; \"before\": from the former launch's end to this beginning\n%-24s %7s",
      "cell", "before");
  for (int phase = 0; phase < phases; ++phase) std::printf(" %13s", phase_names[phase]);
  std::printf("\n");
  std::vector<Cell> cells = verify_cells();
  for (const Cell& cell : decode_cells()) cells.push_back(cell);
  for (const Cell& cell : filtered(cells, bench.filter)) {
    const Workload work = make_workload(cell, 20);
    const InputSets inputs(work, Bench::rotated_bytes, bench.stream);
    LibraryAttention attention(inputs, bench.blocks, bench.stream);
    if (!attention.takes_ranges()) continue;
    const auto marks_per_launch = static_cast<std::size_t>(bench.blocks.ranges * phases);
    const auto sets = static_cast<std::size_t>(inputs.sets());
    DeviceArray<std::uint64_t> marks(std::vector<std::uint64_t>(sets * marks_per_launch, 0));
    // Warm, then what counts.
    for (int round = 0; round < 2; ++round) {
      replay_once(
          [&] {
            for (std::int32_t set = 0; set < inputs.sets(); ++set) {
              attention.queue_traced(
                  set, marks.data() + static_cast<std::size_t>(set) * marks_per_launch);
            }
          },
          bench.stream);
    }
    const std::vector<std::uint64_t> found = marks.download(0, sets * marks_per_launch);
    std::vector<double> before;
    std::vector<double> middle[phases], last[phases];
    std::uint64_t end = 0;
    for (std::size_t set = 0; set < sets; ++set) {
      const Launch launch{found.data() + set * marks_per_launch, bench.blocks.ranges};
      if (set > 0) {
        before.push_back(1e-3 * (static_cast<double>(launch.begin()) - static_cast<double>(end)));
        for (int phase = 0; phase < phases; ++phase) {
          const std::vector<double> times = launch.times(phase);
          if (times.empty()) continue;
          middle[phase].push_back(times[times.size() / 2]);
          last[phase].push_back(times.back());
        }
      }
      end = launch.end();
    }
    std::printf("%-24s %7.1f", cell.name().c_str(), median(before));
    for (int phase = 0; phase < phases; ++phase) {
      std::printf(" %6.1f/%6.1f", median(middle[phase]), median(last[phase]));
    }
    std::printf("\n");
    std::fflush(stdout);
  }
}

}  // namespace coppice::bench
