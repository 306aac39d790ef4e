#include "cli/one_request.h"

#include <algorithm>
#include <exception>
#include <utility>

namespace coppice::cli {

bool has_begun(const Generation& sample) {
  const bool never_began = sample.finish_reason == FinishReason::cancelled && sample.tokens.empty();
  return !never_began && sample.finish_reason != FinishReason::failed;
}

Outcome write_request(Engine& engine, const Request& request, const std::stop_token& stop) {
  Outcome outcome = std::move(engine.generate({&request, 1}, {}, stop).front());
  const bool any = std::any_of(outcome.samples.begin(), outcome.samples.end(), has_begun);
  if (outcome.error && !any) std::rethrow_exception(outcome.error);
  return outcome;
}

}  // namespace coppice::cli
