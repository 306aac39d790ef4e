#include "kernels/device_sampler.h"

#include <atomic>

namespace coppice {

void PassEpilogue::renew() {
  static std::atomic<std::uint64_t> given = 0;
  id_ = ++given;
}

DeviceSampler::DeviceSampler(std::int64_t draft_vocab) : draft_vocab_(draft_vocab) {}

void DeviceSampler::Epilogue::queue(float* logits, std::int32_t rows) {
  switch (job_) {
    case Job::draw:
      return sampler_.draw(logits, sampler_.draft_vocab_, rows);
    case Job::score:
      return sampler_.score(logits, sampler_.draft_vocab_, rows);
    case Job::judge:
      return sampler_.judge(logits, rows);
  }
}

void DeviceSampler::plant(DeviceFault fault) {
  if (fault == fault_) return;
  fault_ = fault;
  draw_epilogue_.renew();
  judge_epilogue_.renew();
}

}  // namespace coppice
