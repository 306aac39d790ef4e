#include <algorithm>
#include <cmath>

#include "bench/timing.h"
#include "kernels/cuda/error.h"

namespace coppice::bench {
namespace {

using cuda::check;

/// As long as Triton's do_bench. Clocks idle while the host makes inputs: after 2 ms alone some
/// cells were 6 to 10% slower. After longer ones cells that multiply most are, as the card draws
/// more.
constexpr double warm_up_us = 25e3;
/// A batch takes about as long, so that the events around it do not count.
constexpr double batch_us = 400.0;
constexpr std::int32_t most_replays = 200;
/// What the host needs at most for one launch.
constexpr double launch_us = 6.0;

__device__ std::uint64_t nanoseconds() {
  std::uint64_t time;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
  return time;
}

__global__ void hold(std::uint64_t duration) {
  const std::uint64_t start = nanoseconds();
  while (nanoseconds() - start < duration) __nanosleep(200);
}

class TimingEvent {
 public:
  TimingEvent() { check(cudaEventCreate(&event_), "creating an event"); }
  TimingEvent(const TimingEvent&) = delete;
  TimingEvent& operator=(const TimingEvent&) = delete;
  ~TimingEvent() { (void)cudaEventDestroy(event_); }

  void record(cudaStream_t stream) const {
    check(cudaEventRecord(event_, stream), "recording an event");
  }
  double us_since(const TimingEvent& start) const {
    check(cudaEventSynchronize(event_), "the timed kernels");
    float milliseconds = 0.0f;
    check(cudaEventElapsedTime(&milliseconds, start.event_, event_), "timing");
    return 1e3 * static_cast<double>(milliseconds);
  }

 private:
  cudaEvent_t event_ = nullptr;
};

class Recording {
 public:
  Recording(const std::function<void()>& queue, cudaStream_t stream) {
    cudaGraph_t graph = nullptr;
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "recording");
    try {
      queue();
    } catch (...) {
      (void)cudaStreamEndCapture(stream, &graph);
      if (graph != nullptr) (void)cudaGraphDestroy(graph);
      throw;
    }
    check(cudaStreamEndCapture(stream, &graph), "ending a recording");
    const cudaError_t status = cudaGraphInstantiate(&executable_, graph, 0);
    (void)cudaGraphDestroy(graph);
    check(status, "preparing a recording");
    check(cudaGraphUpload(executable_, stream), "preparing a recording");
  }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
  ~Recording() { (void)cudaGraphExecDestroy(executable_); }

  void replay(cudaStream_t stream) const {
    check(cudaGraphLaunch(executable_, stream), "replaying a recording");
  }

 private:
  cudaGraphExec_t executable_ = nullptr;
};

/// Times of one replay, sorted: `samples` of them, the recordings taking turns.
std::vector<double> sample(const std::vector<std::unique_ptr<Recording>>& recordings,
                           std::int32_t samples, cudaStream_t stream) {
  const TimingEvent start, stop;
  std::size_t next = 0;
  const auto batch = [&](std::int32_t replays) {
    hold<<<1, 1, 0, stream>>>(static_cast<std::uint64_t>(1e3 * launch_us * replays));
    cuda::check_launch("hold");
    start.record(stream);
    for (std::int32_t i = 0; i < replays; ++i) {
      recordings[next]->replay(stream);
      next = (next + 1) % recordings.size();
    }
    stop.record(stream);
    return stop.us_since(start) / replays;
  };
  const auto rotation = std::min(most_replays, static_cast<std::int32_t>(recordings.size()));
  batch(rotation);
  double about = 0.0;
  for (double warm = 0.0; warm < warm_up_us; warm += about * rotation) {
    about = std::max(0.5, batch(rotation));
  }
  const std::int32_t replays =
      std::clamp(static_cast<std::int32_t>(std::ceil(batch_us / about)), 1, most_replays);
  std::vector<double> times;
  for (std::int32_t i = 0; i < samples; ++i) times.push_back(batch(replays));
  std::sort(times.begin(), times.end());
  return times;
}

}  // namespace

Timing time_replays(std::int32_t sets, std::int32_t samples,
                    const std::function<void(std::int32_t set)>& queue, cudaStream_t stream) {
  samples |= 1;
  queue(0);  // code is loaded at a first launch, which a recording forbids
  check(cudaStreamSynchronize(stream), "the timed kernels");
  std::vector<std::unique_ptr<Recording>> layers;
  for (std::int32_t set = 0; set < sets; ++set) {
    layers.push_back(std::make_unique<Recording>([&] { queue(set); }, stream));
  }
  Timing timing;
  const std::vector<double> times = sample(layers, samples, stream);
  timing.median_us = times[times.size() / 2];
  timing.low_us = times[times.size() / 10];
  timing.high_us = times[times.size() - 1 - times.size() / 10];
  layers.clear();
  std::vector<std::unique_ptr<Recording>> pass;
  pass.push_back(std::make_unique<Recording>(
      [&] {
        for (std::int32_t set = 0; set < sets; ++set) queue(set);
      },
      stream));
  timing.in_pass_us = median(sample(pass, std::max(5, samples / 2), stream)) / sets;
  return timing;
}

void replay_once(const std::function<void()>& queue, cudaStream_t stream) {
  const Recording recording(queue, stream);
  recording.replay(stream);
  check(cudaStreamSynchronize(stream), "a replay");
}

double median_seconds(std::int32_t samples, const std::function<void()>& queue,
                      cudaStream_t stream) {
  const TimingEvent start, stop;
  std::vector<double> times;
  for (std::int32_t i = -3; i < samples; ++i) {
    start.record(stream);
    queue();
    stop.record(stream);
    const double us = stop.us_since(start);
    if (i >= 0) times.push_back(1e-6 * us);
  }
  return median(times);
}

}  // namespace coppice::bench
