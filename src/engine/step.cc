#include "engine/step.h"

#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "base/stopwatch.h"
#include "sizing/constants.h"

namespace coppice {
namespace {

// From any of the process's threads, which were not done with it.
std::int64_t processors_taken() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_nivcsw;
}

}  // namespace

Step::Step(TextRun& text)
    : text_(text),
      engine_(text.engine),
      key_{text.request.options.seed, text.request.options.stream, text.state.steps++,
           static_cast<std::uint64_t>(text.state.length()) + (text.state.taken_back << 32)},
      began_(now_seconds()),
      began_cpu_(thread_cpu_seconds()),
      taken_before_(processors_taken()) {
  text_.tree.reset(text_.state.tokens.back());
}

void Step::grow() {
  const std::optional<GrowthLimits> limits =
      text_.speculator.plan(text_.state, text_.tokens_left());
  if (!limits) return;
  const double start = now_seconds();
  draft_ = text_.speculator.grow(text_.state, key_, *limits, text_.tree);
  const double rest = now_seconds() - start - draft_->seconds().draft;
  seconds_ = draft_->seconds();
  seconds_.construction = rest - seconds_.drawing;
  text_.account.seconds.draft += seconds_.draft;
  text_.account.seconds.sampling += rest;
  text_.account.draft_passes += draft_->passes();
}

bool Step::judge() {
  const TextTree tree{&text_.state,         &text_.tree, text_.request.options.sampling,
                      text_.request.rule(), key_,        draft_ ? &draft_->sampler() : nullptr,
                      &text_.verdict};
  pass_ = text_.judge->judge({&tree, 1}, seconds_);
  if (!pass_) return false;
  note_logprobs();
  if (engine_.observer) show();
  return true;
}

void Step::commit() {
  pass_->text().commit(text_.verdict.path);
  if (draft_) draft_->commit(text_.tree, text_.verdict.path);
  for (const std::int32_t node : text_.verdict.path) {
    text_.state.append(text_.tree.token[static_cast<std::size_t>(node)]);
  }
  text_.state.append(text_.verdict.bonus);
}

void Step::account() {
  TextRun::Account& a = text_.account;
  ++a.steps;
  a.seconds.verify += seconds_.verify;
  a.seconds.sampling += seconds_.judging;
  a.judged += static_cast<std::int64_t>(text_.verdict.path.size()) + 1;
  a.drafted += text_.tree.size();
  text_.speculator.learn(text_.tree, text_.verdict, draft_.get(), seconds_, disturbed());
}

// Whether others ran in the place of this thread, or of one that helps it: a pass then waits for
// that one's part. On a GPU the host's part is small, and it may sleep while it waits.
bool Step::disturbed() const {
  if (!engine_.device->shares_host_memory()) return false;
  if (processors_taken() != taken_before_) return true;
  return thread_cpu_seconds() - began_cpu_ <
         SizingConstants::least_share_run * (now_seconds() - began_);
}

void Step::show() {
  const Stopwatch timing(text_.account.observer_seconds);
  engine_.observer({text_.state, text_.tree, text_.verdict, pass_->text(),
                    draft_ ? &draft_->sampler() : nullptr, text_.request.options.sampling,
                    text_.speculator.setting().params, key_, draft_ ? draft_->passes() : 0,
                    seconds_, pass_->text().late_rows(),
                    draft_ ? text_.speculator.calibration() : nullptr});
}

void Step::note_logprobs() {
  text_.logprobs.clear();
  if (!text_.request.options.logprobs) return;
  std::int32_t node = 0;
  for (const std::int32_t next : text_.verdict.path) {
    note_logprob(node, text_.tree.token[static_cast<std::size_t>(next)]);
    node = next;
  }
  note_logprob(node, text_.verdict.bonus);
}

void Step::note_logprob(std::int32_t node, TokenId token) {
  const SamplingParams& params = text_.request.options.sampling;
  const std::span<const float> probs =
      params.temperature > 0.0
          ? pass_->text().distribution(node)
          : pass_->text().distribution_at(node, {1.0, 0, 1.0, 0.0, params.repetition_penalty});
  const auto log_of = [&](TokenId t) {
    return std::log(static_cast<double>(probs[static_cast<std::size_t>(t)]));
  };
  TokenLogprob entry{token, log_of(token), {}};
  const auto count = std::min<std::size_t>(5, probs.size());
  std::vector<TokenId> ids(probs.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::partial_sort(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count), ids.end(),
                    [&](TokenId a, TokenId b) {
                      const float pa = probs[static_cast<std::size_t>(a)];
                      const float pb = probs[static_cast<std::size_t>(b)];
                      return pa != pb ? pa > pb : a < b;
                    });
  for (std::size_t i = 0; i < count; ++i) {
    if (probs[static_cast<std::size_t>(ids[i])] > 0.0f)
      entry.top.emplace_back(ids[i], log_of(ids[i]));
  }
  text_.logprobs.push_back(std::move(entry));
}

}  // namespace coppice
