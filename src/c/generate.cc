// Requests, one or many at once.
#include <exception>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "c/handles.h"
#include "c/options.h"
#include "c/outcome.h"

using namespace coppice;
using namespace coppice::c;

coppice_status coppice_generate(coppice_engine* engine, const coppice_request* request,
                                coppice_outcome** outcome) {
  return guarded([&] {
    need(engine, "engine");
    need(outcome, "outcome");
    const Request own = request_of(request);
    auto handle = std::make_unique<coppice_outcome>();
    std::vector<Outcome> outcomes = engine->engine.generate(std::span(&own, 1));
    if (outcomes[0].error != nullptr) std::rethrow_exception(outcomes[0].error);
    fill(*handle, std::move(outcomes[0]));
    if (handle->failure.status != COPPICE_OK) throw std::bad_alloc();
    *outcome = handle.release();
  });
}

coppice_status coppice_generate_many(coppice_engine* engine, const coppice_request* const* requests,
                                     size_t count, coppice_outcome_callback on_outcome, void* user,
                                     coppice_stop* stop, coppice_outcome** outcomes) {
  return guarded([&] {
    need(engine, "engine");
    std::vector<Request> own;
    for (const coppice_request* const request : span_of(requests, count, "requests")) {
      try {
        own.push_back(request_of(request));
      } catch (const Error& error) {
        throw Error(error.kind(), cat("request ", own.size(), ": ", error.what()));
      }
    }
    if (count > 0) need(outcomes, "outcomes");
    std::vector<std::unique_ptr<coppice_outcome>> handles(count);
    for (auto& handle : handles) handle = std::make_unique<coppice_outcome>();
    engine->engine.generate(
        own,
        [&](std::size_t index, Outcome& outcome) {
          fill(*handles[index], std::move(outcome));
          if (on_outcome != nullptr) on_outcome(user, index, handles[index].get());
        },
        stop != nullptr ? stop->source.get_token() : std::stop_token());
    for (std::size_t i = 0; i < count; ++i) outcomes[i] = handles[i].release();
  });
}

coppice_status coppice_stop_new(coppice_stop** stop) {
  return guarded([&] {
    need(stop, "stop");
    *stop = new coppice_stop;
  });
}

void coppice_stop_request(coppice_stop* stop) {
  if (stop != nullptr) stop->source.request_stop();
}

void coppice_stop_free(coppice_stop* stop) { delete stop; }
