#include "phase_times.h"

#include <algorithm>

#include "bench/timing.h"

namespace coppice::bench {
namespace {

using cuda::hopper::Phase;
using cuda::hopper::phases;

/// One launch's marks, in nanoseconds; 0 where a block did not get to a phase.
struct Launch {
  const std::uint64_t* marks;
  std::int32_t blocks;

  std::uint64_t at(std::int32_t block, int phase) const { return marks[block * phases + phase]; }
  std::uint64_t begin() const {
    std::uint64_t first = UINT64_MAX;
    for (std::int32_t block = 0; block < blocks; ++block) first = std::min(first, at(block, 0));
    return first;
  }
  std::uint64_t end() const { return *std::max_element(marks, marks + blocks * phases); }
  /// Microseconds from begin() of the blocks that got to a phase, sorted.
  std::vector<double> times(int phase) const {
    std::vector<double> found;
    for (std::int32_t block = 0; block < blocks; ++block) {
      const std::uint64_t mark = at(block, phase);
      if (mark != 0) found.push_back(1e-3 * static_cast<double>(mark - begin()));
    }
    std::sort(found.begin(), found.end());
    return found;
  }
};

double at(const std::array<double, phases>& times, Phase phase) {
  return times[static_cast<std::size_t>(phase)];
}

}  // namespace

double PhaseTimes::start_us() const { return before_us + at(middle_us, Phase::first_keys); }
double PhaseTimes::tiles_us() const {
  return at(last_us, Phase::computed) - at(middle_us, Phase::first_keys);
}
double PhaseTimes::exchange_us() const { return end_us - at(last_us, Phase::computed); }

PhaseTimes phase_times(const InputSets& inputs, LibraryAttention& attention, std::int32_t blocks,
                       cudaStream_t stream) {
  const auto per_launch = static_cast<std::size_t>(blocks * phases);
  const auto sets = static_cast<std::size_t>(inputs.sets());
  DeviceArray<std::uint64_t> marks(std::vector<std::uint64_t>(sets * per_launch, 0));
  for (int round = 0; round < 2; ++round) {  // the first warms up
    replay_once(
        [&] {
          for (std::int32_t set = 0; set < inputs.sets(); ++set) {
            attention.queue_traced(set, marks.data() + static_cast<std::size_t>(set) * per_launch);
          }
        },
        stream);
  }
  const std::vector<std::uint64_t> found = marks.download(0, sets * per_launch);
  std::vector<double> before, end;
  std::array<std::vector<double>, phases> middle, last;
  for (std::size_t set = 1; set < sets; ++set) {
    const Launch former{found.data() + (set - 1) * per_launch, blocks};
    const Launch launch{found.data() + set * per_launch, blocks};
    before.push_back(1e-3 *
                     (static_cast<double>(launch.begin()) - static_cast<double>(former.end())));
    end.push_back(1e-3 * static_cast<double>(launch.end() - launch.begin()));
    for (int phase = 0; phase < phases; ++phase) {
      const std::vector<double> times = launch.times(phase);
      if (times.empty()) continue;
      middle[static_cast<std::size_t>(phase)].push_back(times[times.size() / 2]);
      last[static_cast<std::size_t>(phase)].push_back(times.back());
    }
  }
  PhaseTimes times;
  times.before_us = median(before);
  times.end_us = median(end);
  for (std::size_t phase = 0; phase < phases; ++phase) {
    times.middle_us[phase] = median(middle[phase]);
    times.last_us[phase] = median(last[phase]);
  }
  return times;
}

}  // namespace coppice::bench
