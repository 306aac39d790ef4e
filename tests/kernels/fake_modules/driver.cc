// Stands in for the NVIDIA driver, libcuda.so.1: counts as many GPUs as FAKE_GPUS says, or does not
// start if that is less than 0.
#include <cstdlib>

namespace {

int gpus() {
  const char* const count = std::getenv("FAKE_GPUS");
  return count == nullptr ? 1 : std::atoi(count);
}

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED int cuInit(unsigned) { return gpus() < 0 ? 999 : 0; }
EXPORTED int cuDeviceGetCount(int* count) {
  *count = gpus();
  return 0;
}
EXPORTED int cuGetErrorString(int, const char** text) {
  *text = "a fault of the fake driver";
  return 0;
}
