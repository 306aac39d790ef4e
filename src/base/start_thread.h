// Threads that the system may refuse.
#pragma once

#include <system_error>
#include <thread>
#include <utility>

#include "base/error.h"

namespace coppice {

/// A thread, std::jthread as well, that does `work`. Throws Error(failure) where the system lets
/// this process start no more of them.
template <typename Thread = std::thread, typename Work>
Thread start_thread(Work&& work) {
  try {
    return Thread(std::forward<Work>(work));
  } catch (const std::system_error& error) {
    throw_failure(cat("threads: the system lets this process start no more (", error.what(),
                      "); free memory, or raise the limits of memory and threads"));
  }
}

}  // namespace coppice
