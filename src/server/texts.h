// A request's texts while the engine writes them.
#pragma once

#include <functional>
#include <memory>

#include "server/api/writer.h"
#include "server/backend.h"
#include "server/log.h"
#include "server/metrics.h"

namespace coppice::server {

struct TextsHooks {
  Metrics& metrics;
  Log& log;
  std::string id;      ///< of the request
  double since = 0.0;  ///< when it came
  /// On the I/O thread, when all is over.
  std::function<void()> over;
  /// What an error's body is in this API.
  std::function<HttpAnswer(int status, const std::string& message)> error;
};

/// Has the engine write them and answers the exchange; a client that leaves cancels them. Returns
/// at once.
void write_texts(Backend& backend, TextsJob job, std::shared_ptr<Exchange> exchange,
                 TextsHooks hooks);

}  // namespace coppice::server
