// Drafting policies written in Python.
#pragma once

#include <cstdint>
#include <string>

#include "handles.h"

namespace coppice_python {

/// What a factory makes grows the trees of each generation. The engine's threads call it, with
/// Python's lock.
class OwnPolicy {
 public:
  /// `factory`: a class, or a function without arguments.
  explicit OwnPolicy(nb::object factory);
  OwnPolicy(const OwnPolicy&) = delete;

  /// `size` and `depth` as those of coppice_policy.
  const coppice_policy* take_limits(std::int32_t size, std::int32_t depth);
  /// The first exception that its functions raised, or None.
  nb::object failure() const { return failure_; }

 private:
  struct State;
  static void* create(void* self);
  static void destroy(void* state);
  static int begin(void* state, const coppice_growing_tree* tree);
  static std::int32_t grow(void* state, coppice_growing_tree* tree, const std::int32_t* evaluated,
                           std::size_t count, std::int32_t* next);
  void note_failure(nb::python_error& error);
  /// Asks a policy; `rule` is what an answer of another type breaks.
  template <typename Ask>
  void note_failures(const char* rule, const Ask& ask);

  coppice_policy policy_;
  nb::object factory_;
  nb::object failure_ = nb::none();
  std::string name_;
};

void define_policy(nb::module_& module);

}  // namespace coppice_python
