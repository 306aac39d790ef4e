// An engine, and the requests that it has under way.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "handles.h"

namespace coppice_python {

class Batch;

/// Requests that Python dropped go on until the step at hand has ended. They stay here until then,
/// so that nobody has to wait for them.
class EngineOwner {
 public:
  explicit EngineOwner(coppice_engine* engine) : engine_(engine) {}
  EngineOwner(const EngineOwner&) = delete;
  /// Ends all requests.
  ~EngineOwner();

  coppice_engine* get() const { return engine_; }
  void add(std::shared_ptr<Batch> batch);
  /// Frees the requests that have ended and that nobody reads any more.
  void sweep();
  /// Ends all requests and waits until they have ended.
  void end_all();

 private:
  coppice_engine* const engine_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<Batch>> batches_;
};

}  // namespace coppice_python
