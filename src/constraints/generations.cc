#include "constraints/generations.h"

#include <utility>

namespace coppice::constraints {

Generations::Generations(std::shared_ptr<const Vocabulary> vocabulary,
                         std::shared_ptr<const Language> language, double renewed_at)
    : vocabulary_(std::move(vocabulary)),
      language_(std::move(language)),
      // A language that is large itself would else be renewed by every text.
      renewed_at_(language_->expressions.filled() * (1.0 - renewed_at) + renewed_at) {}

std::shared_ptr<const Constraint> Generations::for_text() const {
  const std::lock_guard lock(mutex_);
  if (newest_ == nullptr || newest_->usage().filled > renewed_at_) {
    newest_ = std::make_shared<const Constraint>(vocabulary_, language_);
  }
  return newest_;
}

}  // namespace coppice::constraints
