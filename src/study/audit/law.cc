#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "study/audit/tests.h"

namespace coppice::study {
namespace {

/// Bound on the difference that rounding makes between two passes to a difference of two logits.
/// A model of L layers rounds its activations 4 L + 1 times; each time is a relative error of the
/// type's unit roundoff u (bf16: 2^-9; f32: 2^-24 times the root of the longest sum), which adds
/// up as a random walk on logits of which the best lies `spread` above their mean:
/// u * sqrt(4 L + 1) * spread, and twice that for two passes. Of keys and values that are rounded
/// once more to a coarser unit k, a share u / k of the two passes' differs, by k: sqrt(u k) beside
/// u.
double logit_rounding(const Model& model, DType kv, double spread) {
  const ModelConfig& config = model.config();
  const DType compute = model.device().compute_dtype();
  const auto longest = static_cast<double>(std::max(config.hidden_size, config.intermediate_size));
  const auto unit_of = [&](DType type) {
    switch (type) {
      case DType::f32:
        return std::ldexp(std::sqrt(longest), -24);
      case DType::f16:
        return std::ldexp(1.0, -11);
      case DType::bf16:
        break;
    }
    return std::ldexp(1.0, -9);
  };
  double unit = unit_of(compute);
  const auto rounded_by = [&](double step) { unit = std::sqrt(unit * (unit + step)); };
  if (unit_of(kv) > unit) rounded_by(unit_of(kv));
  // A step of 8 bits is a fiftieth of what 32 activations are on average. Few are rounded the other
  // way, so that the farthest of some hundred rows is six times as far as most.
  if (compute_name(model) == "int8") rounded_by(6.0 / 50.0);
  return 2.0 * unit * std::sqrt(4.0 * config.layers + 1.0) * spread;
}

/// How far the best logit, or log-probability, lies above the mean of the finite ones.
double spread_of(std::span<const double> logits) {
  double sum = 0.0, count = 0.0, best = -std::numeric_limits<double>::infinity();
  for (const double x : logits) {
    if (!std::isfinite(x)) continue;
    sum += x;
    count += 1.0;
    best = std::max(best, x);
  }
  return count > 0.0 ? best - sum / count : 0.0;
}

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
  std::ranges::stable_sort(
      chosen, [](const auto* a, const auto* b) { return a->second.size() > b->second.size(); });
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

PlainPass plain_pass(Engine& engine, std::span<const TokenId> text,
                     const GenerateOptions& sampling) {
  GenerateOptions options = whole_text(sampling, 1);
  options.speculation = Plain{};
  PlainPass pass;
  const Observed observed(engine, [&](const StepView& view) {
    const auto probability = view.target.distribution(0);
    pass.probability.assign(probability.begin(), probability.end());
    // At temperature 1, so that gaps are gaps of logits.
    const auto unfiltered = view.target.distribution_at(0, view.target_params.unfiltered());
    pass.logprob.reserve(unfiltered.size());
    for (const float p : unfiltered) pass.logprob.push_back(std::log(static_cast<double>(p)));
  });
  engine.generate(text, options);
  if (pass.probability.empty()) {
    throw_failure(cat("audit: no KV slot is left for a text of ", text.size(),
                      " tokens; raise --kv-tokens or give shorter prompts"));
  }
  const EngineAccess access(engine);
  pass.rounding =
      logit_rounding(*access.target().model, access.device().kv_dtype(), spread_of(pass.logprob));
  return pass;
}

double PlainPass::least_kept() const {
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t t = 0; t < probability.size(); ++t) {
    if (probability[t] > 0.0f) least = std::min(least, logprob[t]);
  }
  return least;
}

TargetLaws::TargetLaws(Engine& engine, const GenerateOptions& sampling)
    : engine_(engine), sampling_(sampling) {}

const TokenLaw* TargetLaws::find(std::span<const TokenId> text) const {
  const auto found = laws_.find({text.begin(), text.end()});
  return found == laws_.end() ? nullptr : &found->second;
}

const TokenLaw& TargetLaws::after(std::span<const TokenId> text) {
  std::vector<TokenId> key(text.begin(), text.end());
  const auto found = laws_.find(key);
  if (found != laws_.end()) return found->second;
  PlainPass pass = plain_pass(engine_, text, sampling_);
  rounding_ = std::max(rounding_, pass.rounding);
  // A filter's edge moves with rounding: what lies just outside may be inside in another pass.
  const double least_kept = pass.least_kept();
  std::vector<TokenId> borderline;
  for (std::size_t t = 0; t < pass.probability.size(); ++t) {
    if (!(pass.probability[t] > 0.0f) && pass.logprob[t] >= least_kept - pass.rounding) {
      borderline.push_back(static_cast<TokenId>(t));
    }
  }
  return laws_.emplace(std::move(key), make_token_law(std::move(pass.probability), borderline))
      .first->second;
}

LawSampling::LawSampling(Engine& engine, TargetLaws& laws,
                         const std::vector<std::vector<TokenId>>& prompts,
                         const GenerateOptions& options, std::uint64_t first_stream)
    : engine_(engine),
      access_(engine),
      laws_(laws),
      prompts_(prompts),
      options_(whole_text(options, sampled_tokens)),
      drawn_(prompts.size()),
      first_stream_(first_stream) {
  access_.check(options_);
  rest();
}

void LawSampling::rest() {
  states_.clear();
  for (const auto& prompt : prompts_) states_.push_back(access_.new_state(prompt));
}

Generation LawSampling::draw_text(std::size_t prompt, std::uint64_t stream) {
  options_.stream = stream;
  SequenceState& state = states_[prompt];
  const CutBack cut_back{state, state.length()};
  // Short of slots, generate() says so.
  if (TargetRunner::prefill_rows(state) > 0) access_.turn().target.prefill(state);
  Generation text = access_.generate(state, options_);
  if (text.finish_reason == FinishReason::length) return text;
  throw_failure(cat("audit: ", name_of(text.finish_reason), " ended a text after ",
                    prompts_[prompt].size(), " + ", text.tokens.size(),
                    " tokens; give shorter prompts or raise --kv-tokens"));
}

void LawSampling::draw(std::int64_t count, const std::function<void()>& tick) {
  for (std::int64_t i = 0; i < count; ++i) {
    const std::size_t prompt = samples_ % prompts_.size();
    const Generation text = draw_text(prompt, first_stream_ + samples_);
    sums_ += Trial::of(text.statistics);
    drawn_[prompt].insert(drawn_[prompt].end(), text.tokens.begin(), text.tokens.end());
    ++samples_;
    tick();
  }
}

std::vector<EventFinding> LawSampling::test(double significance) {
  std::vector<EventFinding> findings;
  for (std::int32_t depth = 0; depth < tested_tokens; ++depth) {
    TokenTest tokens;
    for (std::size_t p = 0; p < prompts_.size(); ++p) {
      const Groups groups = group(drawn_[p], depth);
      for (const auto* one : frequent(groups)) {
        std::vector<TokenId> text = prompts_[p];
        text.insert(text.end(), one->first.begin(), one->first.end());
        tokens.add(laws_.after(text), one->second);
      }
    }
    const Fit fit = tokens.fit();
    findings.push_back(
        {fit, cat("token ", depth + 1),
         detectable_variation(fit.degrees, fit.samples, significance, stated_power)});
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
        finding.pass_variation_largest = std::max(finding.pass_variation_largest, apart);
        ++finding.pass_nodes;
      }
      if (i == view.verdict.path.size()) break;
      node = view.verdict.path[i];
      text.push_back(view.tree.token[node]);
    }
  });
  for (std::size_t p = 0; p < prompts_.size(); ++p) {
    for (std::uint64_t i = 0; i < compared_texts; ++i) {
      draw_text(p, i * prompts_.size() + p);
    }
  }
  if (finding.pass_nodes > 0) {
    finding.pass_variation_mean = sum / static_cast<double>(finding.pass_nodes);
  }
  if (!options_.sampling.filters()) {
    // Logits that move by up to r against each other multiply odds by up to exp(r / temperature):
    // no event's probability p moves by more than between the logistic of -x and of x, x half that.
    const double x = 0.5 * laws_.rounding() / options_.sampling.temperature;
    finding.pass_variation_bound = std::tanh(0.5 * x);
  }
}

}  // namespace coppice::study
