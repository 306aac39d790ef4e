#include "kernels/cpu/threads.h"

#include <thread>

#ifdef __linux__
#include <sched.h>
#endif

namespace coppice::cpu {

int usable_threads() {
#ifdef __linux__
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
#endif
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace coppice::cpu
