#include "study/advise/advise.h"

#include <algorithm>
#include <array>
#include <boost/math/statistics/univariate_statistics.hpp>
#include <cmath>
#include <numeric>
#include <set>

#include "base/error.h"
#include "drafting/sequoia.h"
#include "engine/access.h"
#include "engine/check_speculation.h"
#include "study/acceptance/acceptance.h"
#include "study/grid/grid.h"
#include "study/prompts/prompts.h"

namespace coppice::study {
namespace {

constexpr std::array dyspec_sizes = {2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 256, 768};
constexpr std::array chain_lengths = {1, 2, 3, 4, 5, 6, 8, 10, 12, 16};
constexpr std::array sequoia_sizes = {4, 8, 16, 32, 64};
/// Of what is looked up, beside the draft and alone.
constexpr std::array lookup_sizes = {4, 8, 16, 32};
constexpr std::int32_t most_depth = 10;
/// Candidates that are tried on every prompt, plain decoding beside them.
constexpr std::size_t least_kept = 4;

/// For each run of the measurement; many times what an engine grants itself, for a better table.
constexpr double cost_budget_seconds = 4.0;
/// The same where costs are shown and sizes follow them, but no tree is planned for them.
constexpr double short_budget_seconds = 1.0;

void choose(Check& check) {
  for (std::size_t s = 1; s < check.settings.size(); ++s) {
    const Candidate& one = check.settings[s];
    if (one.speedup < least_speedup) continue;
    if (one.lowest <= 1.0) {
      check.undecided = true;
    } else if (!check.best || one.speedup > check.settings[*check.best].speedup) {
      check.best = s;
    }
  }
  check.undecided = check.undecided && !check.best;
}

class Adviser {
 public:
  Adviser(Engine& engine, const AdviceRequest& request, double budget_seconds)
      : engine_(engine), request_(request) {
    if (request.prompts.empty()) throw_usage("advise: no prompt to continue; give one");
    if (!engine.has_draft())
      throw_usage(
          "advise: it needs a draft model; give --draft MODEL, or for a target in "
          "16 or 32 bits --draft self:q4_k");
    if (request.rounds < 1) throw_usage(cat("advise: ", request.rounds, " rounds; use 1 or more"));
    check_acceptance_vector(request.acceptance_vector);
    if (request.new_tokens < fewest_new_tokens) {
      throw_usage(cat("advise: ", request.new_tokens, " new tokens are too few; use ",
                      fewest_new_tokens, " or more"));
    }
    options_ = whole_text(request.sampling, request.new_tokens);
    options_.speculation = Plain{};
    options_.acceptance = settled_acceptance(options_);
    EngineAccess access(engine);
    access.check(options_);
    double length = 0.0;
    for (const auto& prompt : request.prompts) {
      require_room(engine, static_cast<std::int64_t>(prompt.size()), request.new_tokens);
      length += static_cast<double>(prompt.size());
    }
    prefix_ = static_cast<std::int32_t>(length / static_cast<double>(request.prompts.size()) +
                                        0.5 * request.new_tokens);
    request.tell("measuring costs", 0.0);
    costs_ = access.find_costs(budget_seconds, request.stop_measuring);
    stopped_ = request.stopped();
    if (stopped_) return;
    if (costs_ == nullptr) {
      throw_failure("advise: too few free KV slots to measure costs in; raise --kv-tokens");
    }
    largest_ = access.options().max_tree_size;
    // Where every pass waits for copies of weights, further rows are nearly free.
    if (access.target().model->streamed_bytes() == 0) {
      largest_ = std::min(largest_advised_tree, largest_);
    }
    advice_.largest_tree = largest_;
    advice_.device = access.device().name();
    advice_.dtype = compute_name(*access.target().model);
    advice_.temperature = options_.sampling.temperature;
    advice_.acceptance = options_.acceptance;
    advice_.target_seconds = costs_->target.seconds(1, prefix_);
    advice_.target_wide_seconds = costs_->target.seconds(17, prefix_);
    advice_.draft_seconds = costs_->draft.seconds(1, prefix_);
  }

  Advice run() {
    if (!stopped_ && measure_vector() && sample() && request_.check) check();
    advice_.stopped = stopped_;
    return std::move(advice_);
  }

  // Text by text, plain decoding beside it, so that a change of the machine's speed meets both.
  bool try_format(DraftFormat& format) {
    if (stopped_) return false;
    format.draft_seconds = advice_.draft_seconds;
    const Candidate automatic{Policy::dyspec};
    advice_.candidates = {advice_.plain, automatic};
    if (!warm_up()) return false;
    const std::size_t prompts = request_.prompts.size();
    for (std::size_t p = 0; p < prompts; ++p) {
      request_.tell(cat("trying draft weights (", format.name, ")"), static_cast<double>(p),
                    static_cast<double>(prompts));
      format.plain += run(request_of(advice_.plain), p, p);
      if (!stopped_) format.drafted += run(request_of(automatic), p, p);
      if (stopped_) return false;
    }
    return true;
  }

 private:
  GenerateOptions request_of(const Candidate& one) const {
    PolicyOptions asked = policy_named(one.name());
    asked.tree_size = one.tree_size;
    if (one.policy == Policy::sequoia) {
      asked.tree_depth = one.tree_depth;
      asked.acceptance_vector = advice_.acceptance_vector;
    }
    GenerateOptions options = options_;
    set_policy(options, asked);
    return options;
  }

  /// A setting's run on a prompt; of no meaning if it was stopped. Streams tell texts apart.
  Trial run(const GenerateOptions& setting, std::size_t prompt, std::uint64_t stream) {
    GenerateOptions options = setting;
    options.stream = stream;
    if (request_.run) {
      const Trial trial = request_.run(options, prompt);
      stopped_ = stopped_ || request_.stopped();
      return trial;
    }
    const std::vector<TokenId>& tokens = request_.prompts[prompt];
    const Generation text = engine_.generate(tokens, options, [this](const Piece&) {
      stopped_ = stopped_ || request_.stopped();
      return !stopped_;
    });
    if (stopped_) return {};
    // A text that was cut short says nothing of whole ones.
    if (text.finish_reason != FinishReason::length) {
      throw_failure(cat("advise: ", name_of(text.finish_reason), " ended a text after ",
                        tokens.size(), " + ", text.tokens.size(),
                        " tokens; raise --kv-tokens or lower --prompt-tokens"));
    }
    return Trial::of(text.statistics);
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
    asked.progress = request_.progress;
    const auto measured = measure_acceptance(engine_, asked);
    stopped_ = !measured;
    if (stopped_) return false;
    constexpr double resolution = 1000.0;
    vector = vector_to_plan_for(*measured);
    for (double& prob : vector) {
      prob = std::max(1.0, std::floor(prob * resolution)) / resolution;
    }
    double sum = std::accumulate(vector.begin(), vector.end(), 0.0);
    while (vector.size() > 1 && sum > 1.0) {
      sum -= vector.back();
      vector.pop_back();
    }
    return true;
  }

  /// Seconds of the passes of a step with this tree: a draft pass for each layer that has children.
  double seconds_of(const TreeShape& shape) const {
    std::vector<std::int32_t> rows(static_cast<std::size_t>(shape.height()), 0);
    for (std::int32_t n = 0; n <= shape.size(); ++n) {
      if (shape.children(n) > 0) ++rows[shape.depth(n)];
    }
    double seconds = costs_->target.seconds(shape.size() + 1, prefix_);
    for (const std::int32_t count : rows) seconds += costs_->draft.seconds(count, prefix_);
    return seconds;
  }

  // Sequoia's own choice (section 3.3): the depth that makes most of what its passes cost.
  Candidate best_sequoia(std::int32_t size) const {
    Candidate best{Policy::sequoia};
    std::pair most = {false, 0.0};  // whether it has all nodes that are asked for, its speed
    for (std::int32_t depth = 1; depth <= most_depth; ++depth) {
      const GrowMap map = plan_sequoia(advice_.acceptance_vector, {size, depth});
      const std::pair worth = {map.shape.size() == size,
                               map.expected_length / seconds_of(map.shape)};
      if (worth <= most) continue;
      most = worth;
      // With few ranks that are ever accepted a tree has fewer nodes than were asked for, and goes
      // by those that it has.
      best.tree_size = map.shape.size();
      best.tree_depth = depth;
    }
    return best;
  }

  std::vector<Candidate> candidates() const {
    std::vector<Candidate> all;
    for (const std::int32_t size : dyspec_sizes) {
      if (size <= largest_) all.push_back({Policy::dyspec, size});
    }
    for (const std::int32_t length : chain_lengths) {
      if (length <= largest_) all.push_back({Policy::chain, length});
    }
    std::set<std::int32_t> known = {0};
    for (const std::int32_t size : sequoia_sizes) {
      if (size > largest_) continue;
      const Candidate one = best_sequoia(size);
      if (known.insert(one.tree_size).second) all.push_back(one);
    }
    for (const std::int32_t size : lookup_sizes) {
      if (size > largest_) continue;
      all.push_back({.policy = Policy::dyspec, .tree_size = size, .looks_up = true});
      all.push_back(lookup_alone(size));
    }
    return all;
  }

  static Candidate lookup_alone(std::int32_t size) {
    return {.policy = Policy::dyspec, .tree_size = size, .looks_up = true, .drafts = false};
  }

  // Prompt by prompt, all settings one after the other, so that a change of the machine's speed
  // meets all alike. After each prompt the slower half is left out. False: stopped.
  bool sample() {
    std::vector<Candidate>& all = advice_.candidates;
    all = candidates();
    std::vector<Candidate*> kept;
    for (Candidate& one : all) kept.push_back(&one);
    const auto after = [](std::size_t count) {
      return std::min(count, std::max(least_kept, count / 2));
    };
    std::size_t done = 0, runs = 0, left = kept.size();
    for (std::size_t p = 0; p < request_.prompts.size(); ++p, left = after(left)) runs += 1 + left;
    if (!warm_up()) return false;
    for (std::size_t p = 0; p < request_.prompts.size(); ++p) {
      std::vector<Candidate*> settings = kept;
      settings.insert(settings.begin(), &advice_.plain);
      for (Candidate* one : settings) {
        one->sampled += run(request_of(*one), p, p);
        if (stopped_) return false;
        ++one->prompts;
        request_.tell("sampling speeds", static_cast<double>(++done), static_cast<double>(runs));
      }
      for (Candidate* one : kept) {
        one->sampled_speedup =
            one->sampled.tokens_per_second() / advice_.plain.sampled.tokens_per_second();
      }
      std::ranges::stable_sort(kept, std::greater<>(), &Candidate::sampled_speedup);
      kept.resize(after(kept.size()));
    }
    best_ = kept;
    const bool promises = kept.front()->sampled_speedup >= least_speedup;
    advice_.advised = promises ? *kept.front() : advice_.plain;
    advice_.pays = !advice_.advised.plain();
    return true;
  }

  // The first passes of a kind fill caches and are recorded on a GPU.
  bool warm_up() {
    if (request_.run) return true;
    constexpr std::int32_t few = 8;
    double done = 0.0;
    for (const Candidate& one : advice_.candidates) {
      request_.tell("warming up", done++, static_cast<double>(advice_.candidates.size()));
      GenerateOptions options = request_of(one);
      options.max_new_tokens = few;
      run(options, 0, 0);
      if (stopped_) return false;
    }
    return true;
  }

  // Plain decoding, the best candidates of two policies (also where nothing promises to pay: short
  // runs may be wrong either way), and automatic sizes: of the draft, of lookup, and of both.
  std::vector<Candidate> settings_to_check() const {
    std::vector<Candidate> settings = {advice_.plain};
    constexpr std::size_t most_sampled = 3;  // plain decoding included
    for (const Candidate* one : best_) {
      const auto is_like = [&](const Candidate& other) { return other.name() == one->name(); };
      if (settings.size() < most_sampled && std::ranges::none_of(settings, is_like)) {
        settings.push_back(*one);
      }
    }
    settings.push_back({Policy::dyspec});
    settings.push_back({.policy = Policy::dyspec, .looks_up = true});
    settings.push_back(lookup_alone(0));
    return settings;
  }

  // What rounds say stands against any short run.
  void check() {
    const std::vector<Candidate> settings = settings_to_check();
    const std::size_t prompts = request_.prompts.size();
    const std::size_t all = settings.size() * prompts * static_cast<std::size_t>(request_.rounds);
    std::size_t done = 0;
    advice_.check =
        confirm(settings, prompts, request_.rounds,
                [&](std::size_t s, std::size_t prompt, std::int32_t round) -> std::optional<Trial> {
                  // Other texts than those that were sampled.
                  const std::size_t stream = prompts * static_cast<std::size_t>(1 + round) + prompt;
                  const Trial trial = run(request_of(settings[s]), prompt, stream);
                  if (stopped_) return std::nullopt;
                  request_.tell("checking against plain decoding", static_cast<double>(++done),
                                static_cast<double>(all));
                  return trial;
                });
    if (!advice_.check) return;
    const Check& check = *advice_.check;
    advice_.pays = check.best.has_value();
    advice_.advised = check.settings[check.best.value_or(0)];
  }

  Engine& engine_;
  const AdviceRequest& request_;
  GenerateOptions options_;
  const CostTable* costs_ = nullptr;
  std::int32_t prefix_ = 0;  ///< tokens of a text, at which costs are read
  std::int32_t largest_ = 0;
  Advice advice_;
  std::vector<Candidate*> best_;  ///< of the candidates, the fastest first
  bool stopped_ = false;
};

}  // namespace

std::string Candidate::name() const {
  PolicyOptions options;
  options.policy = policy;
  options.looks_up = looks_up;
  options.drafts = drafts;
  return policy_name(options);
}

std::optional<Check> confirm(std::vector<Candidate> settings, std::size_t prompts,
                             std::int32_t rounds, const CheckedRun& run) {
  Check check;
  check.settings = std::move(settings);
  check.rounds = rounds;
  const std::size_t count = check.settings.size();
  std::vector<std::vector<double>> rates(count);  // by setting, by round
  for (std::int32_t round = 0; round < rounds; ++round) {
    std::vector<Trial> sums(count);
    for (std::size_t prompt = 0; prompt < prompts; ++prompt) {
      for (std::size_t turn = 0; turn < count; ++turn) {
        // Whoever runs first finds other caches: each setting does so equally often.
        const std::size_t s = (turn + prompt + static_cast<std::size_t>(round)) % count;
        const std::optional<Trial> trial = run(s, prompt, round);
        if (!trial) return std::nullopt;
        sums[s] += *trial;
      }
    }
    for (std::size_t s = 0; s < count; ++s) {
      if (!(sums[s].seconds > 0.0)) {
        throw_failure("advise: a run took no time by the clock; raise --max-new-tokens");
      }
      rates[s].push_back(sums[s].tokens_per_second());
      check.settings[s].measured += sums[s];
    }
  }
  for (std::size_t s = 0; s < count; ++s) {
    Candidate& one = check.settings[s];
    std::vector<double> ratios;
    for (std::size_t r = 0; r < rates[s].size(); ++r) ratios.push_back(rates[s][r] / rates[0][r]);
    const auto [lowest, highest] = std::ranges::minmax(ratios);
    one.lowest = lowest;
    one.highest = highest;
    one.speedup = boost::math::statistics::median(ratios);
  }
  const auto [slowest, fastest] = std::ranges::minmax(rates[0]);
  check.plain_slowest = slowest;
  check.plain_fastest = fastest;
  choose(check);
  return check;
}

void require_room(Engine& engine, std::int64_t prompt_tokens, std::int32_t new_tokens) {
  const auto [room, memory_is_short] = room_of(engine, true);
  if (prompt_tokens + new_tokens <= room) return;
  throw_usage(cat("advise: a prompt of ", prompt_tokens, " tokens and ", new_tokens,
                  " new ones do not fit ", memory_is_short ? "the KV memory" : "the context",
                  " of ", room, " tokens; lower --prompt-tokens or --max-new-tokens",
                  memory_is_short ? ", or raise --kv-tokens" : ""));
}

bool try_format(Engine& engine, const AdviceRequest& request, DraftFormat& format) {
  return Adviser(engine, request, short_budget_seconds).try_format(format);
}

Advice advise(Engine& engine, const AdviceRequest& request) {
  return Adviser(engine, request, cost_budget_seconds).run();
}

}  // namespace coppice::study
