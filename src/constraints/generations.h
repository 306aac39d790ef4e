// A constraint that lives as long as a server does.
#pragma once

#include <memory>
#include <mutex>

#include "constraints/constraint.h"

namespace coppice::constraints {

/// Texts meet new states, which a Constraint keeps until it goes. So a Constraint that is half full
/// takes no new texts: the next text begins in a new one of the same language, and the old one goes
/// with its last text. All functions may be called from several threads at once.
class Generations {
 public:
  /// `renewed_at`: how full a Constraint is that takes no new texts (Constraint::Usage::filled).
  Generations(std::shared_ptr<const Vocabulary> vocabulary,
              std::shared_ptr<const Language> language, double renewed_at = 0.5);

  const Vocabulary& vocabulary() const { return *vocabulary_; }
  /// For one text, from its first token to its last.
  std::shared_ptr<const Constraint> for_text() const;

 private:
  std::shared_ptr<const Vocabulary> vocabulary_;
  std::shared_ptr<const Language> language_;
  double renewed_at_;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const Constraint> newest_;  ///< null: no text has begun yet
};

}  // namespace coppice::constraints
