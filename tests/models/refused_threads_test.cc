// The system lets the process start no more threads: one error that says so, or the work is done
// with those that run; never an end of the program.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <cerrno>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/start_thread.h"
#include "kernels/device.h"
#include "models/gguf/quantise_model.h"
#include "models/rank_threads.h"
#include "reference/files.h"
#include "reference/tiny_model.h"

namespace {

/// How many threads this one may start; below 0: no end of them.
thread_local int threads_left = -1;

}  // namespace

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*run)(void*), void* argument) noexcept {
  if (threads_left >= 0 && threads_left-- == 0) return EAGAIN;
  static const auto create =
      reinterpret_cast<decltype(&pthread_create)>(::dlsym(RTLD_NEXT, "pthread_create"));
  return create(thread, attributes, run, argument);
}

namespace coppice::testing {
namespace {

TEST(RefusedThreads, OfRanksAreAnErrorAndThoseThatRunEnd) {
  const std::unique_ptr<Device> device = make_cpu_device({});
  const std::vector<Device*> devices(4, device.get());
  for (int started = 0; started < 3; ++started) {
    threads_left = started;
    const std::string message = error_of([&] { const RankThreads threads(devices); });
    threads_left = -1;
    EXPECT_TRUE(message.starts_with("threads: the system lets this process start no more"))
        << started << ": " << message;
  }
  threads_left = 3;
  RankThreads threads(devices);
  threads_left = -1;
  std::vector<int> called(4);
  threads.run([&](int rank) { ++called[static_cast<std::size_t>(rank)]; });
  EXPECT_EQ(called, std::vector<int>(4, 1));
}

TEST(RefusedThreads, ThatEndByThemselvesAreAnErrorToo) {
  threads_left = 0;
  const std::string message =
      error_of([] { start_thread<std::jthread>([](const std::stop_token&) { FAIL(); }); });
  threads_left = -1;
  EXPECT_TRUE(message.starts_with("threads: the system lets this process start no more"))
      << message;
  bool is_stopped = false;
  {
    // Its end asks it to stop.
    const std::jthread thread = start_thread<std::jthread>([&](const std::stop_token& stop) {
      while (!stop.stop_requested()) std::this_thread::yield();
      is_stopped = true;
    });
  }
  EXPECT_TRUE(is_stopped);
}

TEST(RefusedThreads, OfAQuantisationLeaveTheFileAsItIsWithAll) {
  const TemporaryFolder folder;
  const std::filesystem::path model =
      std::filesystem::path(COPPICE_SOURCE_DIR) / "models/stories/draft";
  const auto file_with = [&](int helpers) {
    const std::filesystem::path to = folder.path() / cat(helpers, ".gguf");
    threads_left = helpers;
    EXPECT_TRUE(quantise_model({.from = model, .to = to, .threads = 4, .progress = {}}));
    threads_left = -1;
    return bytes_of(to);
  };
  const std::string whole = file_with(3);
  for (int helpers = 0; helpers < 3; ++helpers) EXPECT_EQ(file_with(helpers), whole) << helpers;
}

}  // namespace
}  // namespace coppice::testing
