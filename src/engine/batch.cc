// Many requests in one call.
#include <algorithm>
#include <list>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <stop_token>
#include <utility>

#include "base/error.h"
#include "engine/open_request.h"
#include "engine/opening_order.h"
#include "engine/scheduler.h"
#include "engine/sequence_impl.h"

namespace coppice {
namespace {

/// Opens sequences as room comes and gathers what becomes of them.
class Batch {
 public:
  Batch(Engine::Impl& engine, std::span<const Request> requests, const OutcomeCallback& finished,
        const std::stop_token& stop)
      : engine_(engine),
        requests_(requests),
        finished_(finished),
        stop_(stop),
        most_(most_open(engine)),
        outcomes_(requests.size()),
        left_(requests.size(), 1),
        order_(order_of(engine, requests)),
        call_(std::in_place, *engine.scheduler),
        on_stop_(std::in_place, stop, StopCall{*call_}) {}

  std::vector<Outcome> write() {
    open_more();
    while (!stop_.stop_requested()) {
      RunningSequence* const run = call_->next();
      if (run == nullptr) break;
      if (call_->deliver(*run)) continue;
      const auto one = std::find_if(in_flight_.begin(), in_flight_.end(),
                                    [&](const InFlight& each) { return &each.open->run() == run; });
      finish(one);
      open_more();
    }
    if (stop_.stop_requested()) stop_all();
    return std::move(outcomes_);
  }

 private:
  struct StopCall {
    Call& call;
    void operator()() const { call.stop(); }
  };

  struct InFlight {
    std::size_t request;
    std::int32_t sample;
    std::unique_ptr<OpenSequence> open;
  };

  void check(std::size_t index) {
    const Request& request = requests_[index];
    check_request(engine_, request);
    if (request.sequence == nullptr) return;
    const auto [used, fresh] = used_.emplace(request.sequence, index);
    if (!fresh) {
      throw_usage(cat("sequence: requests ", used->second, " and ", index,
                      " of this call name the same; give each its own"));
    }
  }

  static std::vector<std::size_t> order_of(const Engine::Impl& engine,
                                           std::span<const Request> requests) {
    if (engine.options.prefix_cache) return opening_order(requests);
    std::vector<std::size_t> order(requests.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    return order;
  }

  // Until as many are open as may run or wait, or none is left.
  void open_more() {
    while (in_flight_.size() < most_ && next_ < order_.size() && !stop_.stop_requested()) {
      if (sample_ == 0 && !begin(order_[next_])) {
        ++next_;
        continue;
      }
      const std::size_t request = order_[next_];
      const std::int32_t sample = sample_;
      advance();
      bool opened = false, ended = false;
      try {
        ended = open(request, sample);
        opened = true;
      } catch (...) {
        fail(request);
      }
      if (ended) finish(std::prev(in_flight_.end()));
      if (!opened) done(request);
    }
  }

  // False: it has failed.
  bool begin(std::size_t index) {
    const Request& request = requests_[index];
    bool good = false;
    try {
      check_samples(request);
      outcomes_[index] = outcome_before(request);
      check(index);
      left_[index] = request.n;
      good = true;
    } catch (...) {
      fail(index);
    }
    if (!good) done(index);
    return good;
  }

  void advance() {
    if (++sample_ < requests_[order_[next_]].n) return;
    ++next_;
    sample_ = 0;
  }

  // True: it has ended at once.
  bool open(std::size_t index, std::int32_t sample) {
    const Request& request = requests_[index];
    std::list<InFlight> one;
    one.push_back(
        {index, sample, open_sample(sequence_for(engine_, request), request, sample, stop_)});
    const bool runs = begin_run(*call_, *one.front().open);
    in_flight_.splice(in_flight_.end(), one);  // does not fail: the call knows the run
    return !runs;
  }

  void finish(std::list<InFlight>::iterator one) {
    const std::size_t request = one->request;
    try {
      outcomes_[request].samples[static_cast<std::size_t>(one->sample)] = one->open->finish();
    } catch (...) {
      fail(request);
    }
    in_flight_.erase(one);
    done(request);
  }

  // Ends what is open where it stands, and what has not begun.
  void stop_all() {
    on_stop_.reset();
    call_.reset();  // waits for the step at hand
    while (!in_flight_.empty()) {
      in_flight_.front().open->cancel();
      finish(in_flight_.begin());
    }
    while (next_ < order_.size()) {
      if (sample_ == 0 && !begin(order_[next_])) {
        ++next_;
        continue;
      }
      const std::size_t request = order_[next_];
      Generation& sample = outcomes_[request].samples[static_cast<std::size_t>(sample_)];
      sample.finish_reason = FinishReason::cancelled;
      advance();
      done(request);
    }
  }

  void fail(std::size_t request) { note_error(outcomes_[request]); }

  void done(std::size_t request) {
    if (--left_[request] == 0 && finished_) finished_(request, outcomes_[request]);
  }

  Engine::Impl& engine_;  ///< a callback may move its owner
  const std::span<const Request> requests_;
  const OutcomeCallback& finished_;
  const std::stop_token& stop_;
  const std::size_t most_;  ///< sequences open
  std::vector<Outcome> outcomes_;
  std::vector<std::int32_t> left_;               ///< samples of each request that have not ended
  std::map<const Sequence*, std::size_t> used_;  ///< sequences, by which request
  const std::vector<std::size_t> order_;         ///< in which requests are opened
  std::size_t next_ = 0;                         ///< place in it of the next one,
  std::int32_t sample_ = 0;                      ///< and its sample
  std::list<InFlight> in_flight_;                ///< open
  std::optional<Call> call_;                     ///< ends before its sequences
  std::optional<std::stop_callback<StopCall>> on_stop_;
};

}  // namespace

std::vector<Outcome> Engine::generate(std::span<const Request> requests,
                                      const OutcomeCallback& finished,
                                      const std::stop_token& stop) {
  return in_words("generate", [&] { return Batch(*impl_, requests, finished, stop).write(); });
}

}  // namespace coppice
