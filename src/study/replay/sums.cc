#include "study/replay/sums.h"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>

namespace coppice::study {
namespace {

using TextSums = std::array<double, step_columns>;

void add(const ReplayedStep& step, TextSums& sums) {
  sums[steps] += 1.0;
  sums[tokens] += step.accepted_length;
  sums[lowest] += step.bounds.lowest;
  sums[highest] += step.bounds.highest;
  sums[drafted] += step.tree_size;
  sums[passes] += step.draft_passes;
  sums[unrecorded] += step.complete ? 0.0 : 1.0;
  sums[ended_short] += step.bounds.ended_short ? 1.0 : 0.0;
  sums[doubtful] += step.bounds.doubtful ? 1.0 : 0.0;
}

class Summing {
 public:
  Summing(const Replayer& replayer, const Recording& recording, std::int32_t seeds,
          const std::function<bool()>& stop, cpu::Workers& workers)
      : replayer_(replayer),
        recording_(recording),
        stop_(stop),
        workers_(workers),
        seeds_(seeds),
        sums_(recording.texts.size()),
        replayers_(static_cast<std::size_t>(workers.threads())) {
    // With more threads than texts, a text's seeds are parted. Walks over a text share its trees,
    // so that every part costs growing them again.
    const auto texts = std::max<std::int64_t>(1, static_cast<std::int64_t>(sums_.size()));
    parts_ = std::clamp<std::int64_t>((workers.threads() + texts - 1) / texts, 1, seeds);
  }

  StepSums run() {
    const auto units = static_cast<std::int64_t>(sums_.size()) * parts_;
    workers_.run(units, workers_.threads(), [&](std::int64_t unit, int worker) {
      try {
        work_on(unit, worker);
      } catch (...) {
        const std::lock_guard lock(mutex_);
        if (!failure_) failure_ = std::current_exception();
      }
    });
    if (failure_) std::rethrow_exception(failure_);
    StepSums columns;
    for (const Text& text : sums_) {
      if (text.parts_done < parts_) continue;
      for (std::size_t c = 0; c < step_columns; ++c) columns[c].push_back(text.sums[c]);
    }
    return columns;
  }

 private:
  struct Text {
    TextSums sums{};
    std::int64_t parts_done = 0;
  };

  bool stopped() {
    const std::lock_guard lock(mutex_);
    stopped_ = stopped_ || failure_ || (stop_ && stop_());
    return stopped_;
  }

  void work_on(std::int64_t unit, int worker) {
    if (stopped()) return;
    std::unique_ptr<Replayer>& replayer = replayers_[static_cast<std::size_t>(worker)];
    if (!replayer) replayer = std::make_unique<Replayer>(replayer_);
    const auto text = static_cast<std::size_t>(unit / parts_);
    const cpu::Share part = cpu::share_of(seeds_, unit % parts_, parts_);
    TextSums sums{};
    replayer->replay(recording_.texts[text], static_cast<std::uint64_t>(part.begin),
                     static_cast<std::uint64_t>(part.end - part.begin),
                     [&](std::uint64_t, const ReplayedStep& step) { add(step, sums); });
    const std::lock_guard lock(mutex_);
    for (std::size_t c = 0; c < step_columns; ++c) sums_[text].sums[c] += sums[c];
    ++sums_[text].parts_done;
  }

  const Replayer& replayer_;
  const Recording& recording_;
  const std::function<bool()>& stop_;
  cpu::Workers& workers_;
  const std::int32_t seeds_;
  std::int64_t parts_ = 1;  // of a text's seeds
  std::mutex mutex_;        // of the three below
  std::vector<Text> sums_;
  bool stopped_ = false;
  std::exception_ptr failure_;
  std::vector<std::unique_ptr<Replayer>> replayers_;  // by worker
};

}  // namespace

StepSums sum_steps(const Replayer& replayer, const Recording& recording, std::int32_t seeds,
                   const std::function<bool()>& stop, cpu::Workers& workers) {
  return Summing(replayer, recording, seeds, stop, workers).run();
}

}  // namespace coppice::study
