// Handles of coppice_c.h that free themselves, and failures as Python's exceptions.
#pragma once

#include <coppice_c.h>
#include <nanobind/nanobind.h>

#include <memory>

namespace coppice_python {

namespace nb = nanobind;

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

class EngineOwner;
/// What belongs to an engine keeps it.
using EngineHandle = std::shared_ptr<EngineOwner>;

struct Constraint {
  EngineHandle engine;
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

/// Returns a coppice.UsageError or coppice.Error, whose __cause__ is `cause` if that is not None.
nb::object error_of(coppice_status status, const char* message, nb::handle cause = nb::none());

/// Raises what error_of() returns.
[[noreturn]] void raise(coppice_status status, const char* message, nb::handle cause = nb::none());

inline void check(coppice_status status) {
  if (status != COPPICE_OK) raise(status, coppice_error_message());
}

/// Calls a function of coppice_c.h without Python's lock.
template <typename Function, typename... Arguments>
coppice_status call_unlocked(Function function, Arguments... arguments) {
  const nb::gil_scoped_release unlocked;
  return function(arguments...);
}

/// The same, and raises what fails.
template <typename Function, typename... Arguments>
void call(Function function, Arguments... arguments) {
  check(call_unlocked(function, arguments...));
}

}  // namespace coppice_python
