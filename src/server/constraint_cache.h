// The constraints that requests asked for last.
#pragma once

#include <cstddef>
#include <list>
#include <mutex>
#include <utility>

#include "constraints/language.h"
#include "coppice.h"

namespace coppice::server {

/// From any thread; two that ask for one at the same time may both build it.
class ConstraintCache {
 public:
  explicit ConstraintCache(std::size_t most) : most_(most) {}
  /// Throws as constraints::compile().
  Constraint build(const Engine& engine, const constraints::ConstraintSource& source);

 private:
  const std::size_t most_;
  std::mutex mutex_;
  /// The last used first.
  std::list<std::pair<constraints::ConstraintSource, Constraint>> built_;
};

}  // namespace coppice::server
