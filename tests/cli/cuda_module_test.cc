// The command on machines with and without a GPU, a driver, a module, cuBLAS: all of them are fakes
// (tests/kernels/fake_modules), but the command finds and opens them as it does the real ones.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "engine/pair.h"

namespace coppice::testing {
namespace {

struct Result {
  int code = -1;
  std::string out, err;
};

class Machine : public ::testing::Test {
 protected:
  /// Runs `coppice WORDS` with a driver that counts this many GPUs and the module of that name.
  Result run(const std::string& words, int gpus, const std::string& module) {
    const std::string fakes = FAKE_MODULES;
    const auto out = folder_.path() / "out", err = folder_.path() / "err";
    const std::string command =
        "LD_LIBRARY_PATH='" + fakes + "/driver' FAKE_GPUS=" + std::to_string(gpus) +
        " COPPICE_CUDA_MODULE='" + fakes + "/" + module + "' COPPICE_MODELS='" +
        stories().parent_path().string() + "' '" COPPICE_BINARY "' " + words + " >'" +
        out.string() + "' 2>'" + err.string() + "'";
    const int status = std::system(command.c_str());
    EXPECT_TRUE(WIFEXITED(status)) << command;
    return {WEXITSTATUS(status), read_file(out), read_file(err)};
  }
  static std::string read_file(const std::filesystem::path& file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  /// --device cuda ends with one line, auto writes text on the CPU and says `passed_over`, or
  /// nothing.
  void expect(int gpus, const std::string& module, const std::string& why, bool passed_over) {
    SCOPED_TRACE(module);
    const std::string words = "generate --prompt 'It was' --max-new-tokens 2 --policy none";
    const Result asked = run(words + " --device cuda", gpus, module);
    EXPECT_EQ(asked.code, 1);
    EXPECT_EQ(asked.out, "");
    EXPECT_EQ(asked.err.rfind("coppice: --device cuda: ", 0), 0u) << asked.err;
    EXPECT_NE(asked.err.find(why), std::string::npos) << asked.err;
    EXPECT_NE(asked.err.find("use --device cpu"), std::string::npos) << asked.err;
    EXPECT_EQ(std::count(asked.err.begin(), asked.err.end(), '\n'), 1) << asked.err;
    const Result automatic = run(words, gpus, module);
    EXPECT_EQ(automatic.code, 0) << automatic.err;
    EXPECT_NE(automatic.out, "");
    EXPECT_EQ(automatic.err.find("the GPU is passed over") != std::string::npos, passed_over)
        << automatic.err;
    const Result info = run("info", gpus, module);
    EXPECT_EQ(info.code, 0) << info.err;
    EXPECT_NE(info.out.find("GPU             not used: "), std::string::npos) << info.out;
    EXPECT_NE(info.out.find(why), std::string::npos) << info.out;
    if (passed_over) {
      EXPECT_NE(automatic.err.find(why), std::string::npos) << automatic.err;
    }
  }

  TemporaryFolder folder_;
};

TEST_F(Machine, WithoutAGpuTheModuleIsNotOpened) {
  expect(0, "missing_library", "no NVIDIA GPU is visible", false);
  expect(-1, "missing_library",
         "the NVIDIA driver does not start: a fault of the fake driver (999)", false);
}

TEST_F(Machine, ModulesThatCannotBeUsedArePassedOver) {
  expect(1, "missing_library", "libcublasLt.so.99 is not there; install cuBLAS", true);
  expect(1, "other_build", "is of another build", true);
  expect(1, "throws", "failed to start", true);
  expect(1, "nowhere", "was not found (looked in '", true);
}

TEST_F(Machine, TheModuleHasTheLastWord) {
  const Result automatic =
      run("generate --prompt 'It was' --max-new-tokens 2 --policy none", 1, "right");
  EXPECT_EQ(automatic.code, 0);
  EXPECT_NE(automatic.err.find("passed over: the fake module's GPU is too old"), std::string::npos)
      << automatic.err;
  const Result asked = run("generate --prompt 'It was' --device cuda", 1, "right");
  EXPECT_EQ(asked.code, 1);
  EXPECT_EQ(asked.err, "coppice: the fake module makes no devices\n");
}

TEST_F(Machine, StartsWithoutTheModule) {
  const Result version = run("--version", 1, "missing_library");
  EXPECT_EQ(version.code, 0);
  EXPECT_EQ(version.err, "");
}

}  // namespace
}  // namespace coppice::testing
