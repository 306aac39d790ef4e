#include "server/texts.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <utility>

#include "base/stopwatch.h"
#include "server/api/answers.h"

namespace coppice::server {
namespace {

/// Callbacks of the engine copy what they are given and post it; all else is of the I/O thread.
class Texts : public std::enable_shared_from_this<Texts> {
 public:
  Texts(TextsJob job, std::shared_ptr<Exchange> exchange, TextsHooks hooks)
      : job_(std::move(job)),
        exchange_(std::move(exchange)),
        hooks_(std::move(hooks)),
        left_(job_.requests.size()),
        progress_(static_cast<std::size_t>(job_.texts())) {}

  void start(Backend& backend) {
    exchange_->when_gone([weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->cancel();
    });
    std::int32_t first = 0;
    for (Request& request : job_.requests) {
      const std::int32_t choice = first;
      first += request.n;
      request.callback = [self = shared_from_this(), choice](std::int32_t sample,
                                                             const Piece& piece) {
        return self->take(choice + sample, piece);
      };
      submit(backend, std::move(request), choice);
    }
  }

 private:
  struct Progress {
    double last = 0.0;
    bool begun = false;
  };

  void submit(Backend& backend, Request request, std::int32_t choice) {
    TextEvents events;
    events.finished = [self = shared_from_this(), choice](Outcome& outcome) {
      self->exchange_->post([self, choice, ended = std::make_shared<Outcome>(std::move(outcome))] {
        self->end(choice, *ended);
      });
    };
    if (job_.trees && job_.stream) {
      events.judged = [self = shared_from_this(), choice](std::int32_t sample,
                                                          const JudgedTree& tree) {
        self->exchange_->post([self, place = choice + sample, tree] {
          if (!self->failed_) self->stream(self->job_.writer->tree(place, tree));
        });
      };
    }
    std::shared_ptr<Job> begun;
    try {
      begun = backend.submit(std::move(request), events);
    } catch (...) {
      Outcome none;
      none.error = std::current_exception();
      return events.finished(none);
    }
    const std::lock_guard lock(mutex_);
    if (over_) return;  // a job that is kept would keep this
    if (cancelled_) begun->cancel();
    jobs_.push_back(std::move(begun));
  }

  // On the engine's thread.
  bool take(std::int32_t choice, const Piece& piece) {
    if (cancelled_) return false;
    const double now = now_seconds();
    Progress& progress = progress_[static_cast<std::size_t>(choice)];
    if (!progress.begun) {
      progress.begun = true;
      hooks_.metrics.first_token(now - hooks_.since);
    } else {
      hooks_.metrics.tokens(now - progress.last, piece.tokens.size());
    }
    progress.last = now;
    if (!job_.stream) return true;
    auto copy = std::make_shared<TextPiece>();
    copy->choice = choice;
    copy->text = std::string(piece.text);
    copy->tokens.assign(piece.tokens.begin(), piece.tokens.end());
    copy->logprobs.assign(piece.logprobs.begin(), piece.logprobs.end());
    exchange_->post([self = shared_from_this(), copy] {
      if (!self->failed_) self->stream(self->job_.writer->piece(*copy));
    });
    return true;
  }

  void end(std::int32_t first_choice, Outcome& outcome) {
    for (const Generation& text : outcome.samples) note(text);
    if (outcome.error && !failed_ && !cancelled_) {
      fail(outcome.error);
    } else if (!failed_ && !cancelled_) {
      const std::string events = job_.writer->ended(first_choice, outcome);
      if (job_.stream) stream(events);
    }
    if (--left_ > 0) return;
    finish();
  }

  void note(const Generation& text) {
    const double seconds = now_seconds() - hooks_.since;
    hooks_.metrics.ended(text, seconds);
    if (!hooks_.log.requests()) return;
    nlohmann::ordered_json line = {{"id", hooks_.id},
                                   {"prompt_tokens", text.statistics.prompt_tokens},
                                   {"cached_tokens", text.statistics.cached_tokens},
                                   {"new_tokens", text.tokens.size()},
                                   {"finish_reason", name_of(text.finish_reason)},
                                   {"accepted_length", text.statistics.accepted_length},
                                   {"seconds", seconds}};
    if (hooks_.log.prompts()) line["text"] = text.text;
    hooks_.log.write("text", line);
  }

  void stream(const std::string& events) {
    if (events.empty()) return;
    if (!std::exchange(begun_, true)) {
      exchange_->begin({200, events, "text/event-stream", {{"Cache-Control", "no-cache"}}});
    } else {
      exchange_->write(events);
    }
  }

  void fail(const std::exception_ptr& error) {
    failed_ = true;
    std::string message;
    const int status = status_of(error, message);
    if (hooks_.log.requests() && status >= 500) {
      hooks_.log.write("failure", {{"id", hooks_.id}, {"message", message}});
    }
    if (begun_) {
      exchange_->write(job_.writer->failed(status, message));
      exchange_->end();
    } else {
      exchange_->answer(hooks_.error(status, message));
    }
    cancel();
  }

  void finish() {
    if (!failed_ && !cancelled_) {
      if (job_.stream) {
        stream(job_.writer->close());
        exchange_->end();
      } else {
        exchange_->answer(job_.writer->whole());
      }
    }
    std::vector<std::shared_ptr<Job>> jobs;
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
      jobs.swap(jobs_);
    }
    hooks_.over();
  }

  void cancel() {
    const std::lock_guard lock(mutex_);
    cancelled_ = true;
    for (const auto& job : jobs_) job->cancel();
  }

  TextsJob job_;
  const std::shared_ptr<Exchange> exchange_;
  const TextsHooks hooks_;
  std::size_t left_;  ///< requests that have not ended
  bool begun_ = false, failed_ = false;
  std::vector<Progress> progress_;  ///< by choice; the engine's
  std::mutex mutex_;
  std::atomic<bool> cancelled_ = false;
  bool over_ = false;
  std::vector<std::shared_ptr<Job>> jobs_;
};

}  // namespace

void write_texts(Backend& backend, TextsJob job, std::shared_ptr<Exchange> exchange,
                 TextsHooks hooks) {
  std::make_shared<Texts>(std::move(job), std::move(exchange), std::move(hooks))->start(backend);
}

}  // namespace coppice::server
