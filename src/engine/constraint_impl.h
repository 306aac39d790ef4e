// The inside of a Constraint.
#pragma once

#include <memory>

#include "constraints/constraint.h"
#include "coppice.h"

namespace coppice {

struct __attribute__((visibility("hidden"))) Constraint::Impl {
  std::shared_ptr<const constraints::Constraint> rules;
};

struct __attribute__((visibility("hidden"))) ConstraintAccess {
  static Constraint make(std::shared_ptr<const constraints::Constraint> rules);
  /// Null where everything may follow.
  static const constraints::Constraint* rules(const Constraint& constraint) {
    return constraint.impl_ == nullptr ? nullptr : constraint.impl_->rules.get();
  }
};

}  // namespace coppice
