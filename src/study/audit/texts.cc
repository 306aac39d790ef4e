#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "kernels/noise.h"
#include "study/audit/tests.h"

namespace coppice::study {
namespace {

// Gap between two tokens behind `text`, in logits at temperature 0, else in logits over
// temperature plus the position's noise.
void weigh(Engine& engine, std::span<const TokenId> text, const GenerateOptions& options,
           AuditDivergence& divergence) {
  const PlainPass pass = plain_pass(engine, text, options);
  const auto plain = static_cast<std::size_t>(divergence.plain);
  const auto other = static_cast<std::size_t>(divergence.speculative);
  divergence.gap = pass.logprob[plain] - pass.logprob[other];
  divergence.bound = pass.rounding;
  if (options.sampling.temperature > 0.0) {
    std::vector<float> noise(pass.logprob.size());
    inverse_exponential_noise(options.seed, options.stream, text.size(), noise);
    const auto log_of = [&](std::size_t t) { return std::log(static_cast<double>(noise[t])); };
    divergence.gap = divergence.gap / options.sampling.temperature + log_of(plain) - log_of(other);
    divergence.bound /= options.sampling.temperature;
    if (!(pass.probability[other] > 0.0f)) {
      // A filter left it out. The tie is then one at the filter's edge.
      divergence.gap = (pass.least_kept() - pass.logprob[other]) / options.sampling.temperature;
    }
  }
  divergence.near_tie = std::abs(divergence.gap) <= divergence.bound;
}

}  // namespace

TextFinding compare_texts(Engine& engine, const std::vector<std::vector<TokenId>>& prompts,
                          const GenerateOptions& options, std::int32_t tokens,
                          const std::function<void()>& tick) {
  TextFinding finding;
  Trial sums;
  GenerateOptions request = options;
  request.ignore_eos = true;
  for (std::size_t p = 0; p < prompts.size(); ++p) {
    std::vector<TokenId> text = prompts[p];
    request.speculation = Plain{};
    request.max_new_tokens = tokens;
    const Generation plain = engine.generate(text, request);
    request.speculation = options.speculation;
    finding.asked_tokens += tokens;
    if (plain.finish_reason != FinishReason::length) {
      finding.ended_early = name_of(plain.finish_reason);
    }

    std::size_t done = 0;
    while (done < plain.tokens.size()) {
      request.max_new_tokens = static_cast<std::int32_t>(plain.tokens.size() - done);
      const Generation fast = engine.generate(text, request);
      sums += Trial::of(fast.statistics);
      const std::span<const TokenId> rest = std::span(plain.tokens).subspan(done);
      const auto same = static_cast<std::size_t>(
          std::mismatch(rest.begin(), rest.end(), fast.tokens.begin(), fast.tokens.end()).first -
          rest.begin());
      text.insert(text.end(), rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(same));
      done += same;
      if (same == rest.size()) break;
      if (same == fast.tokens.size()) {
        // Trees need slots beside the text's own; anything else ends both texts alike.
        if (fast.finish_reason != FinishReason::memory) {
          throw_failure(cat("audit: ", name_of(fast.finish_reason), " ended a speculative text of ",
                            text.size(), " tokens before the plain one; raise --kv-tokens"));
        }
        finding.ended_early = name_of(fast.finish_reason);
        break;
      }
      AuditDivergence divergence;
      divergence.prompt = static_cast<std::int32_t>(p);
      divergence.position = static_cast<std::int32_t>(done);
      divergence.plain = rest[same];
      divergence.speculative = fast.tokens[same];
      weigh(engine, text, request, divergence);
      finding.holds = finding.holds && divergence.near_tie;
      finding.divergences.push_back(divergence);
      text.push_back(rest[same]);
      ++done;
    }
    finding.tokens += static_cast<std::int64_t>(done);
    tick();
  }
  if (finding.tokens == 0) {
    finding.not_tested = cat(finding.ended_early.empty() ? "length" : finding.ended_early,
                             " ended every text before its first new token; give shorter prompts "
                             "or raise --kv-tokens");
  }
  finding.accepted_length = sums.accepted_length();
  return finding;
}

}  // namespace coppice::study
