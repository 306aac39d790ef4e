// What every test program that computes begins with: the instruction set that COPPICE_CPU_ISA says,
// before anything is computed without a device, and a cache folder of its own instead of the
// user's, for the commands that it runs too.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "kernels/cpu/instruction_set.h"

namespace coppice::testing {
namespace {

class OwnEnvironment : public ::testing::Environment {
 public:
  void SetUp() override {
    cpu::instruction_set();
    // A death test's program that begins anew: the folder is its parent's, which removes it.
    const char* inherited = std::getenv("XDG_CACHE_HOME");
    if (inherited != nullptr &&
        std::filesystem::path(inherited).filename().string().rfind("coppice_cache_", 0) == 0) {
      return;
    }
    std::string name = (std::filesystem::temp_directory_path() / "coppice_cache_XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    setenv("XDG_CACHE_HOME", folder_.c_str(), 1);
  }
  void TearDown() override {
    std::error_code ignored;
    if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
  }

 private:
  std::filesystem::path folder_;
};

[[maybe_unused]] ::testing::Environment* const environment =
    ::testing::AddGlobalTestEnvironment(new OwnEnvironment);

}  // namespace
}  // namespace coppice::testing
