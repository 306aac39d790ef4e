// The inside of a Constraint.
#pragma once

#include <memory>
#include <utility>

#include "constraints/generations.h"
#include "coppice.h"

namespace coppice {

struct __attribute__((visibility("hidden"))) Constraint::Impl {
  Impl(std::shared_ptr<const constraints::Vocabulary> vocabulary,
       std::shared_ptr<const constraints::Language> language)
      : generations(std::move(vocabulary), std::move(language)) {}
  constraints::Generations generations;
};

struct __attribute__((visibility("hidden"))) ConstraintAccess {
  static Constraint make(const Engine& engine,
                         std::shared_ptr<const constraints::Language> language);
  /// Null where everything may follow.
  static const constraints::Generations* generations(const Constraint& constraint) {
    return constraint.impl_ == nullptr ? nullptr : &constraint.impl_->generations;
  }
};

}  // namespace coppice
