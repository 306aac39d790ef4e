#include "server/constraint_cache.h"

#include <algorithm>

#include "engine/constraint_impl.h"

namespace coppice::server {

Constraint ConstraintCache::build(const Engine& engine,
                                  const constraints::ConstraintSource& source) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(built_.begin(), built_.end(),
                                    [&](const auto& one) { return one.first == source; });
    if (found != built_.end()) {
      built_.splice(built_.begin(), built_, found);
      return found->second;
    }
  }
  const Constraint made = ConstraintAccess::make(engine, constraints::compile(source));
  const std::lock_guard lock(mutex_);
  built_.emplace_front(source, made);
  if (built_.size() > most_) built_.pop_back();
  return made;
}

}  // namespace coppice::server
