// Logprobs of tokens as C reads them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "coppice.h"
#include "coppice_c.h"

namespace coppice::c {

/// What it is made of may go.
class LogprobViews {
 public:
  explicit LogprobViews(std::span<const TokenLogprob> of) : views_(of.size()) {
    for (const TokenLogprob& one : of) {
      for (const auto& [token, logprob] : one.top) {
        top_tokens_.push_back(token);
        top_logprobs_.push_back(logprob);
      }
    }
    std::size_t first = 0;  // of the top tokens of all
    for (std::size_t i = 0; i < of.size(); ++i) {
      views_[i] = {.token = of[i].token,
                   .top_count = static_cast<std::int32_t>(of[i].top.size()),
                   .logprob = of[i].logprob,
                   .top_tokens = top_tokens_.data() + first,
                   .top_logprobs = top_logprobs_.data() + first};
      pointers_.push_back(&views_[i]);
      first += of[i].top.size();
    }
  }
  LogprobViews(const LogprobViews&) = delete;

  /// NULL: there are none.
  const coppice_token_logprob* const* data() const {
    return pointers_.empty() ? nullptr : pointers_.data();
  }

 private:
  std::vector<std::int32_t> top_tokens_;
  std::vector<double> top_logprobs_;
  std::vector<coppice_token_logprob> views_;
  std::vector<const coppice_token_logprob*> pointers_;
};

}  // namespace coppice::c
