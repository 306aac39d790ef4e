// Requests that the engine's own thread writes, and what engines have done.
#include <memory>
#include <utility>

#include "c/handles.h"
#include "c/options.h"
#include "c/outcome.h"

using namespace coppice;
using namespace coppice::c;

struct coppice_submission {
  using Result = std::unique_ptr<coppice_outcome>;
  /// What the end brings. Shared with it: the handle may be freed in a callback.
  std::shared_ptr<Result> result = std::make_shared<Result>(std::make_unique<coppice_outcome>());
  Submission submission;
};

coppice_status coppice_submit(coppice_engine* engine, const coppice_request* request,
                              void (*on_end)(void* user, const coppice_outcome* outcome),
                              void* user, coppice_submission** submission) {
  return guarded([&] {
    need(engine, "engine");
    need(submission, "submission");
    auto handle = std::make_unique<coppice_submission>();
    handle->submission = engine->engine.submit(
        request_of(request), [result = handle->result, on_end, user](Outcome& outcome) {
          fill(**result, std::move(outcome));
          if (on_end != nullptr) on_end(user, result->get());
        });
    *submission = handle.release();
  });
}

void coppice_submission_cancel(coppice_submission* submission) {
  if (submission != nullptr) submission->submission.cancel();
}

int coppice_submission_done(const coppice_submission* submission) {
  return submission->submission.done();
}

coppice_status coppice_submission_wait(coppice_submission* submission, coppice_outcome** outcome) {
  return guarded([&] {
    need(submission, "submission");
    need(outcome, "outcome");
    submission->submission.wait();
    *outcome = submission->result->release();
  });
}

void coppice_submission_free(coppice_submission* submission) { delete submission; }

namespace {

struct StoredCounts : coppice_engine_counts {
  explicit StoredCounts(EngineStatistics from) : coppice_engine_counts{}, of(std::move(from)) {
    running = of.running;
    waiting = of.waiting;
    passes = of.passes;
    steps = of.steps;
    new_tokens = of.new_tokens;
    drafted = of.drafted;
    accepted = of.accepted;
    preempted = of.preempted;
    depths = of.drafted_by_depth.size();
    of.accepted_by_depth.resize(depths);
    drafted_by_depth = of.drafted_by_depth.data();
    accepted_by_depth = of.accepted_by_depth.data();
  }
  EngineStatistics of;
};

}  // namespace

coppice_status coppice_engine_count(const coppice_engine* engine, coppice_engine_counts** counts) {
  return guarded([&] {
    need(engine, "engine");
    need(counts, "counts");
    *counts = std::make_unique<StoredCounts>(engine->engine.statistics()).release();
  });
}

void coppice_engine_counts_free(coppice_engine_counts* counts) {
  delete static_cast<StoredCounts*>(counts);
}
