// Which modules are opened, which are refused, and where they are looked for. All but the driver is
// real here: the modules are shared objects that tests/kernels/fake_modules builds.
#include "kernels/cuda_module.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <new>

#include "base/error.h"

namespace coppice {
namespace {

namespace fs = std::filesystem;

fs::path fake(const char* name) { return fs::path(FAKE_MODULES) / name / cuda_module_name; }

std::string refusal(const fs::path& file) {
  try {
    open_cuda_module(file);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::failure);
    const std::string text = error.what();
    EXPECT_NE(text.find(file.string()), std::string::npos) << text;
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    return text;
  }
  ADD_FAILURE() << file << " was opened";
  return "";
}

TEST(CudaModule, OneOfThisBuildIsOpened) {
  const CudaModule& module = open_cuda_module(fake("right"));
  EXPECT_STREQ(module.build, cuda_module_build());
  std::string why_not;
  bool present = false;
  EXPECT_FALSE(module.has_device(&why_not, &present));
  EXPECT_EQ(why_not, "the fake module's GPU is too old");
  EXPECT_TRUE(present);
  EXPECT_EQ(&open_cuda_module(fake("right")), &module);
}

TEST(CudaModule, ExceptionsCrossTheBoundary) {
  const CudaModule& module = open_cuda_module(fake("right"));
  try {
    module.make_device({});
    FAIL() << "no device can be made";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::failure);
    EXPECT_STREQ(error.what(), "the fake module makes no devices");
  }
  EXPECT_THROW(module.make_device({.record = false}), std::bad_alloc);
}

TEST(CudaModule, WrongOnesAreRefused) {
  const auto says = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  const std::string other = refusal(fake("other_build"));
  says(other, "of another build ('0.0.1-other', this is '" + std::string(cuda_module_build()));
  says(refusal(fake("throws")), "failed to start");
  says(refusal(fake("no_entry")), "is none: it lacks coppice_cuda_module()");
  says(refusal(fake("undefined_symbol")),
       "cannot be loaded: undefined symbol: coppice_tests_define_this_nowhere");
  const std::string cublas = refusal(fake("missing_library"));
  says(cublas, "cannot be loaded: libcublasLt.so.99 is not there; install cuBLAS");
  says(refusal(fake("nowhere")), "is not there; install program and module from one build");
  says(refusal("/dev/null"), "'/dev/null' cannot be loaded: file too short; install program and");
}

TEST(CudaModule, IsLookedForBesideTheProgram) {
  ASSERT_EQ(unsetenv("COPPICE_CUDA_MODULE"), 0);
  const fs::path program = fs::read_symlink("/proc/self/exe").parent_path();
  const auto places = cuda_module_places();
  ASSERT_GE(places.size(), 3u);
  EXPECT_EQ(places[0], program / cuda_module_name);
  EXPECT_EQ(places[1], program / "coppice" / cuda_module_name);
  for (const fs::path& place : places) {
    EXPECT_TRUE(place.is_absolute()) << place;
    EXPECT_EQ(place.filename(), cuda_module_name);
    EXPECT_EQ(std::count(places.begin(), places.end(), place), 1) << place;
  }
}

TEST(CudaModule, IsLookedForWhereTheVariableSays) {
  ASSERT_EQ(setenv("COPPICE_CUDA_MODULE", "/some/module.so", 1), 0);
  EXPECT_EQ(cuda_module_places(), std::vector<fs::path>{"/some/module.so"});
  const std::string folder = fake("right").parent_path().string();
  ASSERT_EQ(setenv("COPPICE_CUDA_MODULE", folder.c_str(), 1), 0);
  EXPECT_EQ(cuda_module_places(), std::vector<fs::path>{fake("right")});
  ASSERT_EQ(setenv("COPPICE_CUDA_MODULE", "", 1), 0);  // as good as unset
  EXPECT_GE(cuda_module_places().size(), 3u);
  ASSERT_EQ(unsetenv("COPPICE_CUDA_MODULE"), 0);
}

TEST(CudaModule, BuildsAreNamedByReleaseAndSources) {
  const std::string build = cuda_module_build();
  EXPECT_EQ(std::count(build.begin(), build.end(), '-'), 2) << build;
  EXPECT_EQ(build.find('-', build.find('-') + 1) - build.find('-'), 17u) << build;
}

}  // namespace
}  // namespace coppice
