// Handles of coppice_c.h that free themselves, and failures as Python's exceptions.
#pragma once

#include <coppice_c.h>
#include <nanobind/nanobind.h>

#include <memory>
#include <utility>

namespace coppice_python {

namespace nb = nanobind;

/// What belongs to an engine keeps it.
using EngineHandle = std::shared_ptr<coppice_engine>;

template <auto free>
struct Free {
  template <typename Handle>
  void operator()(Handle* handle) const {
    free(handle);
  }
};
using ConstraintHandle = std::shared_ptr<coppice_constraint>;
using OutcomeHandle = std::unique_ptr<coppice_outcome, Free<coppice_outcome_free>>;
using StopHandle = std::unique_ptr<coppice_stop, Free<coppice_stop_free>>;

struct Constraint {
  ConstraintHandle handle;
};

struct Sequence {
  EngineHandle engine;
  std::shared_ptr<coppice_sequence> handle;
};

struct Prefix {
  EngineHandle engine;
  std::shared_ptr<coppice_prefix> handle;
};

/// Without Python's lock: the engine may be at work, and have this wait.
template <auto free>
struct FreeUnlocked {
  template <typename Handle>
  void operator()(Handle* handle) const {
    const nb::gil_scoped_release unlocked;
    free(handle);
  }
};

/// Raises coppice.UsageError or coppice.Error.
[[noreturn]] void raise(coppice_status status, const char* message);

inline void check(coppice_status status) {
  if (status != COPPICE_OK) raise(status, coppice_error_message());
}

/// Calls a function of coppice_c.h without Python's lock.
template <typename Function, typename... Arguments>
void call(Function function, Arguments... arguments) {
  coppice_status status;
  {
    const nb::gil_scoped_release unlocked;
    status = function(arguments...);
  }
  check(status);
}

}  // namespace coppice_python
