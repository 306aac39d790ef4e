// What the handles of coppice_c.h are.
#pragma once

#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "c/logprob_views.h"
#include "c/status.h"
#include "coppice.h"
#include "coppice_c.h"

struct coppice_engine {
  coppice::Engine engine;
  std::string warning;
};

struct coppice_constraint {
  coppice::Constraint constraint;
};

struct coppice_sequence {
  coppice::Sequence sequence;
};

struct coppice_prefix {
  coppice::Prefix prefix;
};

struct coppice_stop {
  std::stop_source source;
};

namespace coppice::c {

/// A generation and what its C view points to.
struct StoredGeneration {
  explicit StoredGeneration(Generation of);
  StoredGeneration(const StoredGeneration&) = delete;

  Generation generation;
  coppice_statistics statistics{};
  coppice_used used{};
  LogprobViews logprobs;
  coppice_generation view{};
};

}  // namespace coppice::c

struct coppice_outcome {
  coppice::c::Failure failure;
  std::size_t count = 0;  ///< samples asked for
  /// Fewer, or null ones, where memory ran out.
  std::vector<std::unique_ptr<coppice::c::StoredGeneration>> samples;
};
