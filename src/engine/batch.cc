// Many requests in one call.
#include <new>
#include <utility>

#include "base/error.h"
#include "engine/sequence_impl.h"

namespace coppice {

std::vector<Outcome> Engine::generate(std::span<const Request> requests,
                                      const OutcomeCallback& finished) {
  std::vector<Outcome> outcomes(requests.size());
  for (std::size_t r = 0; r < requests.size(); ++r) {
    const Request& request = requests[r];
    Outcome& outcome = outcomes[r];
    try {
      if (request.n < 1) throw_usage(cat("n ", request.n, ": use 1 or more"));
      if (request.sequence != nullptr && request.n > 1) {
        throw_usage(cat("n ", request.n, ": a sequence goes on in one way; use 1"));
      }
      if (!request.prompt.empty() && !request.tokens.empty()) {
        throw_usage("prompt: both text and tokens are given; use one of them");
      }
      outcome.samples.resize(static_cast<std::size_t>(request.n));
      for (std::int32_t i = 0; i < request.n; ++i) {
        Sequence fresh = new_sequence();
        Sequence& sequence = request.sequence != nullptr ? *request.sequence : fresh;
        GenerateOptions options = request.options;
        options.stream += static_cast<std::uint64_t>(i);
        PieceCallback callback;
        if (request.callback) {
          callback = [&, i](const Piece& piece) { return request.callback(i, piece); };
        }
        outcome.samples[static_cast<std::size_t>(i)] =
            request.tokens.empty() ? sequence.generate(request.prompt, options, callback)
                                   : sequence.generate(request.tokens, options, callback);
      }
    } catch (...) {
      outcome.error = std::current_exception();
    }
    if (finished) finished(r, outcome);
  }
  return outcomes;
}

}  // namespace coppice
