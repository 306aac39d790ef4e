#include "study/advise/advise.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <map>
#include <mutex>

#include "base/error.h"
#include "drafting/sequoia.h"
#include "engine/access.h"
#include "engine/check_speculation.h"
#include "study/acceptance/acceptance.h"
#include "study/observed.h"

namespace coppice::study {
namespace {

constexpr std::array dyspec_sizes = {2, 4, 6, 8, 12, 16, 24, 32, 48, 64};
constexpr std::array chain_lengths = {1, 2, 3, 4, 5, 6, 8, 10, 12, 16};
constexpr std::array sequoia_sizes = {4, 8, 16, 32, 64};
constexpr std::int32_t most_depth = 10;
/// Steps this close to a text's end have their trees cut short.
constexpr std::int32_t end_margin = chain_lengths.back() + 1;
static_assert(end_margin < fewest_new_tokens);

/// For each run of the measurement; many times what an engine grants itself, for a better table.
constexpr double cost_budget_seconds = 4.0;

// What sampled steps took beside the passes.
struct Rest {
  double seconds = 0.0, nodes = 0.0, steps = 0.0;
};

struct SequoiaTree {
  TreeShape shape;
  std::int32_t depth = 0;  ///< its bound
  bool is_held = false;    ///< by the sampled one
  Workload workload;
};

class Adviser {
 public:
  Adviser(Engine& engine, const AdviceRequest& request) : engine_(engine), request_(request) {
    if (request.prompts.empty()) throw_usage("advise: no prompt to continue; give one");
    if (!engine.has_draft()) throw_usage("advise: it needs a draft model; give --draft DIR");
    if (request.rounds < 1) throw_usage(cat("advise: ", request.rounds, " rounds; use 1 or more"));
    check_acceptance_vector(request.acceptance_vector);
    if (request.new_tokens < fewest_new_tokens) {
      throw_usage(cat("advise: ", request.new_tokens, " new tokens are too few; use ",
                      fewest_new_tokens, " or more"));
    }
    options_ = request.sampling;
    options_.max_new_tokens = request.new_tokens;
    options_.ignore_eos = true;
    options_.logprobs = false;
    options_.speculation = Plain{};
    options_.acceptance = settled_acceptance(options_);
    EngineAccess(engine).check(options_);
    for (const auto& prompt : request.prompts) {
      require_room(engine, static_cast<std::int64_t>(prompt.size()), request.new_tokens);
    }
    costs_ = EngineAccess(engine).find_costs(cost_budget_seconds);
    if (costs_ == nullptr) {
      throw_failure("advise: too few free KV slots to measure costs in; raise --kv-tokens");
    }
    double length = 0.0;
    for (const auto& prompt : request.prompts) length += static_cast<double>(prompt.size());
    advice_.prefix = static_cast<std::int32_t>(
        length / static_cast<double>(request.prompts.size()) + 0.5 * request.new_tokens);
    largest_ = std::min(largest_advised_tree, EngineAccess(engine).options().max_tree_size);
    require_positive("target", costs_->target);
    require_positive("draft", costs_->draft);
  }

  Advice run() {
    describe();
    if (measure_vector() && sample()) {
      if (request_.follow_clock) calibrate();
      predict_all();
      choose();
      if (request_.check) check();
    }
    advice_.stopped = stopped_;
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

  GenerateOptions with(Policy policy, std::int32_t size, std::int32_t depth = 0) const {
    PolicyOptions asked;
    asked.policy = policy;
    asked.tree_size = size;
    if (policy == Policy::sequoia) {
      asked.tree_depth = depth;
      asked.acceptance_vector = advice_.acceptance_vector;
    }
    GenerateOptions options = options_;
    options.speculation = speculation_of(asked);
    return options;
  }

  GrowMap sequoia_map(std::int32_t size, std::int32_t depth) const {
    return plan_sequoia(advice_.acceptance_vector, {size, depth});
  }

  PieceCallback until_stopped() {
    return [this](const Piece&) {
      stopped_ = stopped_ || (request_.stop && request_.stop());
      return !stopped_;
    };
  }

  // False: stopped. Rounded to what a command line shows, which then makes the same trees.
  bool measure_vector() {
    std::vector<double>& vector = advice_.acceptance_vector;
    vector = request_.acceptance_vector;
    if (!vector.empty()) return true;
    AcceptanceRequest asked;
    asked.prompts = request_.prompts;
    asked.sampling = options_;
    asked.ranks = std::min(usual_ranks, largest_);
    asked.new_tokens = request_.new_tokens;
    asked.stop = request_.stop;
    asked.progress = [&](double done) {
      if (request_.progress) request_.progress("measuring acceptance by rank", done);
    };
    const auto measured = measure_acceptance(engine_, asked);
    stopped_ = !measured;
    if (stopped_) return false;
    constexpr double resolution = 1000.0;
    vector = vector_to_plan_for(*measured);
    for (double& prob : vector) {
      prob = std::max(1.0, std::floor(prob * resolution)) / resolution;
    }
    double sum = 0.0;
    for (const double prob : vector) sum += prob;
    while (vector.size() > 1 && sum > 1.0) {
      sum -= vector.back();
      vector.pop_back();
    }
    return true;
  }

  // Sequoia's own choice (section 3.3): the depth that makes most of what its passes cost.
  void plan_sequoias() {
    for (const std::int32_t size : sequoia_sizes) {
      if (size > largest_) continue;
      std::pair best = {false, 0.0};  // whether it has all nodes that are asked for, its speed
      TreeShape shape;
      std::int32_t bound = 0;
      for (std::int32_t depth = 1; depth <= most_depth; ++depth) {
        const GrowMap map = sequoia_map(size, depth);
        Workload workload;
        add_shape(workload, map.shape, map.expected_length, 1.0);
        const std::pair worth = {map.shape.size() == size,
                                 predict(workload, *costs_, advice_.prefix, {}).tokens_per_second};
        if (worth <= best) continue;
        best = worth;
        shape = map.shape;
        bound = depth;
      }
      // With few ranks that are ever accepted a tree has fewer nodes than were asked for, and goes
      // by those that it has.
      const std::int32_t nodes = shape.size();
      if (nodes == 0 || sequoias_.contains(nodes)) continue;
      sequoias_[nodes] = {sequoia_map(nodes, bound).shape, bound, false, {}};
    }
    sampled_shape_ = sequoia_map(largest_, most_depth).shape;
    for (auto& [size, tree] : sequoias_) tree.is_held = holds(sampled_shape_, tree.shape);
  }

  // Texts by each kind of tree, prompt by prompt in turn, so that a change of the machine's speed
  // meets all alike. Large trees say what smaller ones would have done; two small ones are there
  // for the clock.
  // False: stopped.
  bool sample() {
    plan_sequoias();
    const std::int32_t chain = std::min(chain_lengths.back(), largest_);
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
      for (std::int32_t length = 1; length <= chain; ++length) {
        add_chain(chain_[length], tree, path, length);
      }
      add_chain(step, tree, path, chain);
    };
    const auto largest_sequoia = [&](const TokenTree& tree, const Path& path, Workload& step) {
      ranks_.add(tree, path);
      for (auto& [size, one] : sequoias_) {
        if (one.is_held) add_fixed(one.workload, tree, path, one.shape);
      }
      add_fixed(step, tree, path, sampled_shape_);
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
        if (stopped_) return false;
        tell("sampling acceptance", ++done, runs.size() * request_.prompts.size());
      }
    }
    return true;
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
    const std::int32_t depth = policy == Policy::sequoia ? most_depth : 0;
    const Generation text = engine_.generate(prompt, with(policy, size, depth), until_stopped());
    if (stopped_) return;
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
    const auto add = [&](Policy policy, std::int32_t size, const Workload& workload,
                         std::int32_t depth = 0) {
      if (!(workload.steps > 0.0)) return;
      Prediction prediction = predict(workload, *costs_, advice_.prefix, advice_.calibration);
      prediction.policy = policy;
      prediction.tree_size = size;
      prediction.tree_depth = depth;
      prediction.speedup = prediction.tokens_per_second / advice_.plain.tokens_per_second;
      advice_.candidates.push_back(prediction);
    };
    for (const auto& [size, workload] : dyspec_) add(Policy::dyspec, size, workload);
    for (const std::int32_t length : chain_lengths) {
      if (chain_.contains(length)) add(Policy::chain, length, chain_[length]);
    }
    const auto rank_acceptance = estimate_acceptance(ranks_.accepted, ranks_.judged);
    for (auto& [size, tree] : sequoias_) {
      // A chain is a chain: the same counts, hence the same price.
      if (tree.shape.height() == size && chain_.contains(size)) {
        tree.workload = chain_[size];
      } else if (!tree.is_held && !ranks_.judged.empty()) {
        // Sequoia's positional assumption predicts what the sampled tree does not hold.
        add_shape(tree.workload, tree.shape, expected_accepted_length(tree.shape, rank_acceptance),
                  1.0);
      }
      add(Policy::sequoia, size, tree.workload, tree.depth);
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

  // Plain decoding, the best candidates of two policies (also where nothing promises to pay: a
  // prediction may be wrong either way), and automatic sizes.
  std::vector<CheckedPrediction> settings_to_check() const {
    std::vector<CheckedPrediction> settings = {{advice_.plain}};
    std::vector<Prediction> candidates = advice_.candidates;
    std::ranges::stable_sort(candidates, [](const Prediction& a, const Prediction& b) {
      return a.tokens_per_second > b.tokens_per_second;
    });
    constexpr std::size_t most_predicted = 3;  // plain decoding included
    for (const Prediction& candidate : candidates) {
      const auto is_like = [&](const CheckedPrediction& one) {
        // Of one policy, or of one price: the same tree.
        return one.foretold.policy == candidate.policy ||
               one.foretold.tokens_per_second == candidate.tokens_per_second;
      };
      if (std::ranges::any_of(settings, is_like)) continue;
      if (settings.size() < most_predicted) settings.push_back({candidate});
    }
    settings.emplace_back().foretold.policy = Policy::dyspec;
    return settings;
  }

  Trial run_of(const GenerateOptions& options, std::size_t prompt) {
    const std::vector<TokenId>& tokens = request_.prompts[prompt];
    const Generation text = engine_.generate(tokens, options, until_stopped());
    if (stopped_) return {};
    require_whole(text, tokens);
    const Statistics& s = text.statistics;
    Trial trial;
    trial.seconds = s.seconds.total - s.seconds.load - s.seconds.prefill;
    trial.tokens = s.decode_tokens_per_second * trial.seconds;
    trial.steps = static_cast<double>(s.steps);
    trial.judged = s.accepted_length * trial.steps;
    return trial;
  }

  void check() {
    const std::vector<CheckedPrediction> settings = settings_to_check();
    const std::size_t prompts = request_.prompts.size();
    const std::size_t all = settings.size() * prompts * static_cast<std::size_t>(request_.rounds);
    std::size_t done = 0;
    const auto run = [&](std::size_t s, std::size_t prompt,
                         std::int32_t round) -> std::optional<Trial> {
      const Prediction& one = settings[s].foretold;
      GenerateOptions options = with(one.policy, one.tree_size, one.tree_depth);
      // Other texts than those that the prediction was made from.
      options.stream = prompts * static_cast<std::size_t>(1 + round) + prompt;
      const Trial trial = request_.run ? request_.run(options, prompt) : run_of(options, prompt);
      stopped_ = stopped_ || (request_.stop && request_.stop());
      if (stopped_) return std::nullopt;
      tell("checking against plain decoding", ++done, all);
      return trial;
    };
    advice_.check = confirm(settings, prompts, request_.rounds, run);
    if (advice_.check) decide(*advice_.check);
  }

  // What runs say stands against any prediction.
  void decide(const Check& check) {
    advice_.advised = advice_.plain;
    advice_.pays = check.best.has_value();
    if (!advice_.pays) return;
    const CheckedPrediction& best = check.settings[*check.best];
    advice_.advised = best.foretold;
    if (best.is_predicted()) return;
    advice_.advised.accepted_length = best.measured_length;
    advice_.advised.tokens_per_second = best.measured;
    advice_.advised.speedup = best.speedup;
  }

  void describe() {
    advice_.device = EngineAccess(engine_).device().name();
    advice_.dtype = name_of(EngineAccess(engine_).device().compute_dtype());
    advice_.temperature = options_.sampling.temperature;
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
  std::map<std::int32_t, Workload> dyspec_, chain_;  ///< by size
  std::map<std::int32_t, SequoiaTree> sequoias_;     ///< by size
  TreeShape sampled_shape_;
  RankCounts ranks_;
  ClockCalibration clock_;
  Rest plain_rest_, tree_rest_;
  bool stopped_ = false;
};

}  // namespace

void require_room(Engine& engine, std::int64_t prompt_tokens, std::int32_t new_tokens) {
  const EngineAccess access(engine);
  const std::int32_t context = engine.context_length();
  std::int32_t slots = access.target().pool->layout().slots();
  if (const auto& pool = access.draft().pool) slots = std::min(slots, pool->layout().slots());
  if (prompt_tokens + new_tokens <= std::min(context, slots)) return;
  // A small --kv-tokens may have cut the context too.
  const bool whole = context == access.target().model->config().context_length;
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
