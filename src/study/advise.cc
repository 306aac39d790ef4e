#include "study/advise.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <map>
#include <mutex>

#include "cost_measurement.h"
#include "drafting/sequoia.h"
#include "engine_impl.h"
#include "study/observed.h"
#include "tree_plan.h"

namespace coppice::study {
namespace {

constexpr std::array dyspec_sizes = {2, 4, 6, 8, 12, 16, 24, 32, 48, 64};
constexpr std::array chain_lengths = {1, 2, 3, 4, 5, 6, 8, 10, 12, 16};
constexpr std::array sequoia_sizes = {4, 8, 16, 32, 64};
/// Steps this close to a text's end have their trees cut short.
constexpr std::int32_t end_margin = chain_lengths.back() + 1;
static_assert(end_margin < fewest_new_tokens);

double priced(const std::map<std::int32_t, double>& passes, const PassCosts& costs,
              std::int32_t prefix, const ClockRatio& ratio) {
  double seconds = 0.0;
  for (const auto& [rows, count] : passes) {
    seconds += count * ratio.at(rows) * costs.seconds(rows, prefix);
  }
  return seconds;
}

/// For each run of the measurement; many times what an engine grants itself, for a better table.
constexpr double cost_budget_seconds = 4.0;

// The engine's costs if it has or can read some, else measured at leisure.
const CostTable* find_costs(Engine::Impl& engine) {
  if (!engine.costs && engine.options.cost_table.empty() &&
      can_measure(engine.target, engine.draft)) {
    const std::lock_guard lock(engine.mutex);
    const DeviceScope scope(*engine.device);
    engine.costs = measure_costs(engine.target, engine.draft, engine.sampler.get(),
                                 engine.options.max_tree_size + 1, cost_budget_seconds);
  }
  return engine.find_costs();
}

// What sampled steps took beside the passes.
struct Rest {
  double seconds = 0.0, nodes = 0.0, steps = 0.0;
};

class Adviser {
 public:
  Adviser(Engine& engine, const AdviceRequest& request) : engine_(engine), request_(request) {
    if (request.prompts.empty()) throw_usage("advise: no prompt to continue; give one");
    if (!engine.has_draft()) throw_usage("advise: it needs a draft model; give --draft DIR");
    if (request.new_tokens < fewest_new_tokens) {
      throw_usage(cat("advise: ", request.new_tokens, " new tokens are too few; use ",
                      fewest_new_tokens, " or more"));
    }
    options_ = request.sampling;
    options_.max_new_tokens = request.new_tokens;
    options_.ignore_eos = true;
    options_.logprobs = false;
    options_.policy = Policy::none;
    engine.impl().check(options_);
    for (const auto& prompt : request.prompts) {
      require_room(engine, static_cast<std::int64_t>(prompt.size()), request.new_tokens);
    }
    costs_ = find_costs(engine.impl());
    if (costs_ == nullptr) {
      throw_failure("advise: too few free KV slots to measure costs in; raise --kv-tokens");
    }
    double length = 0.0;
    for (const auto& prompt : request.prompts) length += static_cast<double>(prompt.size());
    advice_.prefix = static_cast<std::int32_t>(
        length / static_cast<double>(request.prompts.size()) + 0.5 * request.new_tokens);
    largest_ = std::min(largest_advised_tree, engine.impl().options.max_tree_size);
    require_positive("target", costs_->target);
    require_positive("draft", costs_->draft);
  }

  Advice run() {
    sample();
    if (request_.follow_clock) calibrate();
    predict_all();
    choose();
    if (request_.check) check();
    describe();
    return std::move(advice_);
  }

 private:
  // Of every pass that is priced. Seconds beyond the table go by its last slope.
  void require_positive(const char* model, const PassCosts& costs) const {
    for (std::int32_t rows = 1; rows <= largest_ + 1; ++rows) {
      const double seconds = costs.seconds(rows, advice_.prefix);
      if (seconds > 0.0 && std::isfinite(seconds)) continue;
      throw_failure(cat("advise: the ", model, "'s cost of a pass of ", rows,
                        " tokens came out as ", seconds,
                        " s; run it again on a quiet machine, or raise --kv-tokens"));
    }
  }

  // A text that was cut short says nothing of whole ones.
  void require_whole(const Generation& text, const std::vector<TokenId>& prompt) const {
    if (text.finish_reason == FinishReason::length) return;
    throw_failure(cat("advise: ", name_of(text.finish_reason), " ended a text after ",
                      prompt.size(), " + ", text.tokens.size(),
                      " tokens; raise --kv-tokens or lower --prompt-tokens"));
  }

  void tell(const std::string& what, std::size_t done, std::size_t all) const {
    if (request_.progress) {
      request_.progress(what, static_cast<double>(done) / static_cast<double>(all));
    }
  }

  GenerateOptions with(Policy policy, std::int32_t size) const {
    GenerateOptions options = options_;
    options.policy = policy;
    options.tree_size = size;
    return options;
  }

  TreeShape shape_of(std::int32_t size) const {
    return plan_trees(with(Policy::sequoia, size), largest_).map.shape;
  }

  // Texts by each kind of tree, prompt by prompt in turn, so that a change of the machine's speed
  // meets all alike. Large trees say what smaller ones would have done; two small ones are there
  // for the clock.
  void sample() {
    const std::int32_t chain = std::min(chain_lengths.back(), largest_);
    shapes_[largest_] = shape_of(largest_);
    for (const std::int32_t size : sequoia_sizes) {
      if (size < largest_) shapes_[size] = shape_of(size);
    }
    for (const auto& [size, shape] : shapes_) holds_[size] = holds(shapes_[largest_], shape);

    using Path = std::vector<std::int32_t>;
    using Count = std::function<void(const TokenTree&, const Path&, Workload& step)>;
    struct Run {
      Policy policy;
      std::int32_t size;
      Count count;  // of smaller trees, and of the step itself
    };
    const auto as_dyspec = [](std::int32_t size) {
      return [size](const TokenTree& tree, const Path& path, Workload& step) {
        add_dyspec(step, tree, path, size);
      };
    };
    const auto largest_dyspec = [&](const TokenTree& tree, const Path& path, Workload& step) {
      for (const std::int32_t size : dyspec_sizes) {
        if (size <= largest_) add_dyspec(dyspec_[size], tree, path, size);
      }
      add_dyspec(step, tree, path, largest_);
    };
    const auto longest_chain = [&](const TokenTree& tree, const Path& path, Workload& step) {
      for (const std::int32_t length : chain_lengths) {
        if (length <= chain) add_chain(chain_[length], tree, path, length);
      }
      add_chain(step, tree, path, chain);
    };
    const auto largest_sequoia = [&](const TokenTree& tree, const Path& path, Workload& step) {
      ranks_.add(tree, path);
      for (const auto& [size, shape] : shapes_) {
        if (holds_[size]) add_fixed(sequoia_[size], tree, path, shape);
      }
      add_fixed(step, tree, path, shapes_[largest_]);
    };
    const std::vector<Run> runs = {
        {Policy::none, 0, [](const TokenTree&, const Path&, Workload&) {}},
        {Policy::dyspec, largest_, largest_dyspec},
        {Policy::chain, chain, longest_chain},
        {Policy::sequoia, largest_, largest_sequoia},
        {Policy::dyspec, std::min(3, largest_), as_dyspec(std::min(3, largest_))},
        {Policy::dyspec, std::min(8, largest_), as_dyspec(std::min(8, largest_))},
    };
    std::size_t done = 0;
    for (std::size_t p = 0; p < request_.prompts.size(); ++p) {
      options_.stream = p;
      for (const Run& run : runs) {
        watch(request_.prompts[p], run.policy, run.size, run.count);
        tell("sampling acceptance", ++done, runs.size() * request_.prompts.size());
      }
    }
  }

  void watch(const std::vector<TokenId>& prompt, Policy policy, std::int32_t size,
             const std::function<void(const TokenTree&, const std::vector<std::int32_t>&,
                                      Workload& step)>& count) {
    const auto end = static_cast<std::int32_t>(prompt.size()) + request_.new_tokens;
    const bool plain = policy == Policy::none;
    Rest& rest = plain ? plain_rest_ : tree_rest_;
    const Observed observed(engine_, [&](const StepView& view) {
      const TokenTree& tree = view.tree;
      const std::int32_t prefix = view.state.length();
      if (!view.is_step()) return;
      if (!plain && (prefix + end_margin > end || tree.size() == 0)) return;
      Workload step;
      count(tree, view.verdict.path, step);
      rest.seconds += view.seconds.drawing + view.seconds.construction + view.seconds.judging;
      rest.nodes += tree.size();
      rest.steps += 1.0;
      ClockRatio& ratio = plain ? clock_.plain : clock_.verify;
      ratio.add(tree.nodes(), view.seconds.verify, costs_->target.seconds(tree.nodes(), prefix));
      double rows = 0.0, passes = 0.0;
      for (const auto& [r, n] : step.draft_passes) {
        rows += r * n;
        passes += n;
      }
      if (!(passes > 0.0)) return;
      clock_.draft.add(static_cast<std::int32_t>(rows / passes + 0.5), view.seconds.draft,
                       priced(step.draft_passes, costs_->draft, prefix, {}));
    });
    const Generation text = engine_.generate(prompt, with(policy, size));
    require_whole(text, prompt);
    if (plain) rest.seconds += text.statistics.seconds.other;
  }

  void calibrate() {
    if (plain_rest_.steps > 0.0) clock_.step_seconds = plain_rest_.seconds / plain_rest_.steps;
    if (tree_rest_.nodes > 0.0) {
      const double beyond = tree_rest_.seconds - tree_rest_.steps * clock_.step_seconds;
      clock_.node_seconds = std::max(0.0, beyond / tree_rest_.nodes);
    }
    advice_.calibration = clock_;
  }

  void predict_all() {
    advice_.plain = predict_plain(*costs_, advice_.prefix, advice_.calibration);
    const auto add = [&](Policy policy, std::int32_t size, const Workload& workload) {
      if (!(workload.steps > 0.0)) return;
      Prediction prediction = predict(workload, *costs_, advice_.prefix, advice_.calibration);
      prediction.policy = policy;
      prediction.tree_size = size;
      prediction.speedup = prediction.tokens_per_second / advice_.plain.tokens_per_second;
      advice_.candidates.push_back(prediction);
    };
    for (const auto& [size, workload] : dyspec_) add(Policy::dyspec, size, workload);
    for (const auto& [length, workload] : chain_) add(Policy::chain, length, workload);
    advice_.rank_acceptance = estimate_acceptance(ranks_.accepted, ranks_.judged);
    for (const auto& [size, shape] : shapes_) {
      // Where the largest tree does not hold a smaller one, Sequoia's positional assumption
      // predicts it.
      if (!holds_[size] && !ranks_.judged.empty()) {
        add_shape(sequoia_[size], shape, expected_accepted_length(shape, advice_.rank_acceptance),
                  1.0);
      }
      add(Policy::sequoia, size, sequoia_[size]);
    }
  }

  void choose() {
    advice_.advised = advice_.plain;
    for (const Prediction& candidate : advice_.candidates) {
      if (candidate.speedup < least_speedup) continue;
      if (candidate.tokens_per_second > advice_.advised.tokens_per_second) {
        advice_.advised = candidate;
      }
    }
    advice_.pays = advice_.advised.policy != Policy::none;
  }

  // Plain decoding, what was advised (or what came nearest to paying), and automatic sizes.
  void check() {
    const auto add = [&](const Prediction& p) {
      advice_.checks.push_back(
          {p.policy, p.tree_size, p.tokens_per_second, 0.0, p.accepted_length, 0.0});
    };
    add(advice_.plain);
    if (!advice_.candidates.empty()) {
      add(*std::max_element(advice_.candidates.begin(), advice_.candidates.end(),
                            [](const Prediction& a, const Prediction& b) {
                              return a.tokens_per_second < b.tokens_per_second;
                            }));
    }
    advice_.checks.push_back({Policy::dyspec, 0});
    std::vector<double> tokens(advice_.checks.size()), seconds(tokens), steps(tokens),
        judged(tokens);
    for (std::size_t p = 0; p < request_.prompts.size(); ++p) {
      // Other texts than those that the prediction was made from.
      options_.stream = request_.prompts.size() + p;
      for (std::size_t c = 0; c < advice_.checks.size(); ++c) {
        const CheckedPrediction& one = advice_.checks[c];
        const Generation text =
            engine_.generate(request_.prompts[p], with(one.policy, one.tree_size));
        require_whole(text, request_.prompts[p]);
        const Statistics& s = text.statistics;
        const double decode = s.seconds.total - s.seconds.load - s.seconds.prefill;
        tokens[c] += s.decode_tokens_per_second * decode;
        seconds[c] += decode;
        steps[c] += static_cast<double>(s.steps);
        judged[c] += s.accepted_length * static_cast<double>(s.steps);
        tell("checking the prediction", p * advice_.checks.size() + c + 1,
             request_.prompts.size() * advice_.checks.size());
      }
    }
    for (std::size_t c = 0; c < advice_.checks.size(); ++c) {
      if (seconds[c] > 0.0) advice_.checks[c].measured = tokens[c] / seconds[c];
      if (steps[c] > 0.0) advice_.checks[c].measured_length = judged[c] / steps[c];
    }
  }

  void describe() {
    advice_.device = engine_.impl().device->name();
    advice_.dtype = name_of(engine_.impl().device->compute_dtype());
    advice_.temperature = options_.temperature;
    advice_.acceptance = options_.acceptance;
    advice_.target_seconds = costs_->target.seconds(1, advice_.prefix);
    advice_.target_wide_seconds = costs_->target.seconds(17, advice_.prefix);
    advice_.draft_seconds = costs_->draft.seconds(1, advice_.prefix);
  }

  Engine& engine_;
  const AdviceRequest& request_;
  GenerateOptions options_;
  const CostTable* costs_ = nullptr;
  std::int32_t largest_ = 0;
  Advice advice_;
  std::map<std::int32_t, Workload> dyspec_, chain_, sequoia_;  ///< by size
  std::map<std::int32_t, TreeShape> shapes_;                   ///< Sequoia's, by size
  std::map<std::int32_t, bool> holds_;                         ///< whether the largest holds it
  RankCounts ranks_;
  Calibration clock_;
  Rest plain_rest_, tree_rest_;
};

}  // namespace

void ClockRatio::add(std::int32_t rows, double clock_seconds, double table_seconds) {
  Sum& sum = seen_[rows];
  sum.clock += clock_seconds;
  sum.table += table_seconds;
}

double ClockRatio::at(std::int32_t rows) const {
  const auto ratio = [](const Sum& sum) {
    return sum.clock > 0.0 && sum.table > 0.0 ? sum.clock / sum.table : 1.0;
  };
  if (seen_.empty()) return 1.0;
  const auto above = seen_.lower_bound(rows);
  if (above == seen_.end()) return ratio(std::prev(above)->second);
  if (above == seen_.begin() || above->first == rows) return ratio(above->second);
  const auto below = std::prev(above);
  const double share = static_cast<double>(rows - below->first) / (above->first - below->first);
  return ratio(below->second) + share * (ratio(above->second) - ratio(below->second));
}

Prediction predict(const Workload& workload, const CostTable& costs, std::int32_t prefix,
                   const Calibration& calibration) {
  Prediction p;
  p.accepted_length = workload.accepted_length();
  p.nodes = workload.drafted / workload.steps;
  p.verify_seconds =
      priced(workload.verify_passes, costs.target, prefix, calibration.verify) / workload.steps;
  p.draft_seconds =
      priced(workload.draft_passes, costs.draft, prefix, calibration.draft) / workload.steps;
  p.other_seconds = calibration.step_seconds + calibration.node_seconds * p.nodes;
  p.tokens_per_second = p.accepted_length / (p.verify_seconds + p.draft_seconds + p.other_seconds);
  return p;
}

Prediction predict_plain(const CostTable& costs, std::int32_t prefix,
                         const Calibration& calibration) {
  Prediction p;
  p.verify_seconds = calibration.plain.at(1) * costs.target.seconds(1, prefix);
  p.other_seconds = calibration.step_seconds;
  p.tokens_per_second = 1.0 / (p.verify_seconds + p.other_seconds);
  return p;
}

void require_room(Engine& engine, std::int64_t prompt_tokens, std::int32_t new_tokens) {
  const Engine::Impl& impl = engine.impl();
  const std::int32_t context = engine.context_length();
  std::int32_t slots = impl.target.pool->layout().slots();
  if (impl.draft.pool != nullptr) slots = std::min(slots, impl.draft.pool->layout().slots());
  if (prompt_tokens + new_tokens <= std::min(context, slots)) return;
  // A small --kv-tokens may have cut the context too.
  const bool whole = context == impl.target.model->config().context_length;
  throw_usage(cat("advise: a prompt of ", prompt_tokens, " tokens and ", new_tokens,
                  " new ones do not fit ",
                  slots < context ? cat("the ", slots, " KV slots")
                                  : cat("the context of ", context, " tokens"),
                  "; lower --prompt-tokens or --max-new-tokens",
                  slots < context || !whole ? ", or raise --kv-tokens" : ""));
}

Advice advise(Engine& engine, const AdviceRequest& request) {
  return Adviser(engine, request).run();
}

}  // namespace coppice::study
