#include "reference/test_device.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace coppice::testing {
namespace {

class SkipWithoutGpu : public ::testing::Environment {
 public:
  void SetUp() override {
    std::string why_not;
    if (on_cuda() && !has_cuda_device(&why_not)) GTEST_SKIP() << why_not;
  }
};

const auto* const environment = ::testing::AddGlobalTestEnvironment(new SkipWithoutGpu);

}  // namespace

std::string test_device() {
  const char* chosen = std::getenv("COPPICE_TEST_DEVICE");
  return chosen != nullptr && *chosen != '\0' ? chosen : "cpu";
}

int test_ranks() {
  const char* chosen = std::getenv("COPPICE_TEST_RANKS");
  return chosen != nullptr && *chosen != '\0' ? std::stoi(chosen) : 1;
}

std::unique_ptr<Device> make_test_device() {
  if (on_cuda()) return make_cuda_device({});
  return make_cpu_device({.threads = 1, .compute = DType::f32});
}

}  // namespace coppice::testing
