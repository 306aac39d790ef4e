#include "study/audit/law.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "study/observed.h"

namespace coppice::study {
namespace {

/// Contexts behind a prompt: every one costs a plain pass.
constexpr std::size_t most_contexts = 48;
constexpr std::size_t fewest_samples = 8;
/// Texts of each prompt whose passes are compared.
constexpr std::uint64_t compared_texts = 24;

using Groups = std::map<std::vector<TokenId>, std::vector<TokenId>>;

// The next tokens of the texts by what precedes them, `depth` tokens behind the prompt.
Groups group(const std::vector<TokenId>& drawn, std::ptrdiff_t depth) {
  Groups groups;
  for (auto text = drawn.begin(); text != drawn.end(); text += sampled_tokens) {
    groups[{text, text + depth}].push_back(*(text + depth));
  }
  return groups;
}

// Chosen by how many samples came there, which says nothing about where they went on.
std::vector<const Groups::value_type*> frequent(const Groups& groups) {
  std::vector<const Groups::value_type*> chosen;
  for (const auto& one : groups) {
    if (one.second.size() >= fewest_samples) chosen.push_back(&one);
  }
  std::stable_sort(chosen.begin(), chosen.end(), [](const auto* a, const auto* b) {
    return a->second.size() > b->second.size();
  });
  if (chosen.size() > most_contexts) chosen.resize(most_contexts);
  return chosen;
}

double variation(std::span<const float> a, std::span<const float> b) {
  double sum = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    sum += std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
  }
  return 0.5 * sum;
}

}  // namespace

LawSampling::LawSampling(Engine& engine, TargetLaws& laws,
                         const std::vector<std::vector<TokenId>>& prompts,
                         const GenerateOptions& options)
    : engine_(engine), laws_(laws), prompts_(prompts), options_(options), drawn_(prompts.size()) {
  options_.max_new_tokens = sampled_tokens;
  options_.logprobs = false;
  for (const auto& prompt : prompts) {
    samplers_.push_back(std::make_unique<TextSampler>(engine, prompt));
  }
}

void LawSampling::draw(std::int64_t count, const std::function<void()>& tick) {
  for (std::int64_t i = 0; i < count; ++i) {
    const auto p = static_cast<std::size_t>(samples_) % prompts_.size();
    options_.stream = static_cast<std::uint64_t>(samples_);
    const auto text = samplers_[p]->draw(options_, &statistics_);
    drawn_[p].insert(drawn_[p].end(), text.begin(), text.end());
    ++samples_;
    tick();
  }
}

std::vector<EventFinding> LawSampling::test(double significance) {
  std::vector<EventFinding> findings;
  for (std::int32_t depth = 0; depth < tested_tokens; ++depth) {
    TokenTest tokens;
    RankTest ranks;
    for (std::size_t p = 0; p < prompts_.size(); ++p) {
      const Groups groups = group(drawn_[p], depth);
      for (const auto* one : frequent(groups)) {
        std::vector<TokenId> text = prompts_[p];
        text.insert(text.end(), one->first.begin(), one->first.end());
        const TokenLaw& law = laws_.after(text);
        tokens.add(law, one->second);
        ranks.add(law, one->second);
      }
    }
    findings.push_back({cat("token ", depth + 1), tokens.fit()});
    findings.push_back({cat("rank of token ", depth + 1), ranks.fit()});
  }
  for (EventFinding& finding : findings) {
    finding.smallest_bias =
        detectable_variation(finding.fit.degrees, finding.fit.samples, significance, stated_power);
  }
  return findings;
}

void LawSampling::check_passes(LawFinding& finding) {
  double sum = 0.0;
  const Observed observed(engine_, [&](const StepView& view) {
    std::vector<TokenId> text = view.state.tokens;
    std::int32_t node = 0;
    for (std::size_t i = 0;; ++i) {
      if (const TokenLaw* law = laws_.find(text)) {
        const double apart = variation(view.target.distribution(node), law->probability);
        sum += apart;
        finding.largest_variation = std::max(finding.largest_variation, apart);
        ++finding.nodes;
      }
      if (i == view.verdict.path.size()) break;
      node = view.verdict.path[i];
      text.push_back(view.tree.token[static_cast<std::size_t>(node)]);
    }
  });
  for (std::size_t p = 0; p < prompts_.size(); ++p) {
    for (std::uint64_t i = 0; i < compared_texts; ++i) {
      options_.stream = i * prompts_.size() + p;
      samplers_[p]->draw(options_, nullptr);
    }
  }
  if (finding.nodes > 0) finding.mean_variation = sum / static_cast<double>(finding.nodes);
  const bool filters = options_.top_k > 0 || options_.top_p < 1.0 || options_.min_p > 0.0;
  if (!filters) {
    // Logits that move by up to r against each other multiply odds by up to exp(r / temperature):
    // no event's probability p moves by more than between the logistic of -x and of x, x half that.
    const double x = 0.5 * laws_.rounding() / options_.temperature;
    finding.variation_bound = std::tanh(0.5 * x);
  }
}

std::size_t most_suspicious(const std::vector<EventFinding>& events) {
  return static_cast<std::size_t>(
      std::min_element(events.begin(), events.end(),
                       [](const EventFinding& a, const EventFinding& b) {
                         return a.fit.p_value < b.fit.p_value;
                       }) -
      events.begin());
}

}  // namespace coppice::study
