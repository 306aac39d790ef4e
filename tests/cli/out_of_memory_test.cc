// Memory that runs out where no exception may pass ends the command with one line.
#include "cli/out_of_memory.h"

#include <gtest/gtest.h>

#include <csignal>
#include <exception>
#include <new>

namespace coppice::testing {
namespace {

void call_without_exceptions(void (*call)()) noexcept { call(); }

struct Other : std::exception {
  const char* what() const noexcept override { return "another fault"; }
};

TEST(OutOfMemoryDeathTest, SaysOneLineWhereNoExceptionMayPass) {
  const auto ends_by = [](void (*fail)()) {
    std::set_terminate(cli::end_out_of_memory);
    call_without_exceptions(fail);
  };
  EXPECT_EXIT(ends_by([] { throw std::bad_alloc(); }), ::testing::ExitedWithCode(1),
              "^coppice: out of memory; use [^\n]*\n$");
  EXPECT_EXIT(ends_by([] { throw Other(); }), ::testing::KilledBySignal(SIGABRT), "another fault");
}

}  // namespace
}  // namespace coppice::testing
