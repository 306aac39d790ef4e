// Programs of calls at random: texts are written alone and side by side, go on, are taken back,
// forked, stopped, cancelled and broken off, in memory for a part of them. A ledger beside the
// engine knows what every text is, and checks each token that anybody saw:
//   - under coupled acceptance, and at temperature 0, that it is the very token that the target's
//     law and the noise of its text and position give, both computed here;
//   - under either rule, that it has the target's law: its place in the distribution function, with
//     a number of the ledger's own within the token's step, is uniform, and independent of that of
//     the token before, of those that were taken back from the same position, and of those of other
//     texts at that position (significance 1e-9 for each of five comparisons).
// Faults of the engine's states are planted that must be noticed.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "engine/batch_requests.h"
#include "engine/law_prices.h"
#include "engine/lettered_pair.h"
#include "engine/sequence_impl.h"
#include "models/path_counts.h"
#include "reference/quick.h"
#include "reference/sampling_reference.h"
#include "reference/sanitized.h"
#include "reference/statistics.h"
#include "verify/rejection-inl.h"

namespace coppice::testing {
namespace {

constexpr std::int64_t letters = 16;
constexpr std::size_t longest = 70, most_tales = 10;
constexpr std::uint64_t seed = 5;

// Tokens are the letters a to p.
class Alphabet : public TinyPair {
 public:
  explicit Alphabet(double draft_noise) : TinyPair(shape(), draft_noise) {
    nlohmann::json vocab;
    for (int i = 0; i < letters; ++i) vocab[std::string(1, static_cast<char>('a' + i))] = i;
    write_letters(path() / "target", vocab);
  }
  EngineOptions options() const {
    EngineOptions options = TinyPair::options();
    options.cost_table = write_law_prices(*this, {0});
    options.max_tree_size = 16;
    options.kv_tokens = 128;
    return options;
  }

 private:
  static TinyModel shape() {
    TinyModel model = law_shape(21);
    model.vocab_size = letters;
    return model;
  }
};

enum class StateFault {
  none,
  epochs_modulo_two,
  epoch_of_an_empty_stop,  ///< not counted where a stop text leaves no token
  fork_without_epoch,
  rewinds_counted_once,
  counts_after_rewind,  ///< what was taken back is still counted
  counts_after_fork,    ///< nothing of the trunk is counted
  streams_of_16_bits,
};

// Counts of pairs of uniform numbers.
class Pairs {
 public:
  void add(double a, double b) {
    ++counts_[cell(a) * parts + cell(b)];
    empty_ = false;
  }
  bool empty() const { return empty_; }
  Fit fit() const {
    const std::vector<double> even(parts * parts, 1.0 / static_cast<double>(parts * parts));
    return compare(counts_, even);
  }

 private:
  static constexpr std::size_t parts = 8;
  static std::size_t cell(double u) {
    return std::min(parts - 1, static_cast<std::size_t>(u * static_cast<double>(parts)));
  }
  std::vector<std::int64_t> counts_ = std::vector<std::int64_t>(parts * parts, 0);
  bool empty_ = true;
};

// What the target's law and the noise have to say of tokens.
class Ledger {
 public:
  explicit Ledger(const std::filesystem::path& target) : target_(target) {}

  struct Write {
    std::vector<TokenId> before;  ///< what was there, the prompt included
    std::vector<TokenId> seen;    ///< tokens that came, those of a stop text included
    SamplingParams sampling;
    Acceptance acceptance;
    std::uint64_t seed, stream, epoch;
  };
  /// Checks every token, and returns their places in the distribution functions.
  std::vector<double> check(const Write& write) {
    std::vector<TokenId> text = write.before;
    text.insert(text.end(), write.seen.begin(), write.seen.end());
    const auto logits = target_.logits(text);
    std::vector<bool> counted(letters, false);
    for (const TokenId token : write.before) counted[static_cast<std::size_t>(token)] = true;
    std::vector<double> places;
    for (std::size_t i = 0; i < write.seen.size(); ++i) {
      const auto& row = logits[write.before.size() + i - 1];
      // At temperature 0 the law is one token: how near others come is seen at another one.
      SamplingParams params = write.sampling;
      if (params.temperature == 0.0) params = {1.0, 0, 1.0, 0.0, params.repetition_penalty};
      const Law law = reference_law(std::vector<float>(row.begin(), row.end()), params, counted);
      const TokenId token = write.seen[i];
      if (write.acceptance == Acceptance::coupled || write.sampling.temperature == 0.0) {
        predict(law, write, write.before.size() + i, token);
      }
      if (write.sampling.temperature > 0.0) {
        places.push_back(place(law, token));
        if (i % 2 == 1) next_.add(places[i - 1], places[i]);
        (write.acceptance == Acceptance::coupled ? coupled_ : rejected_)
            .add(places[i], random_unit());
      }
      counted[static_cast<std::size_t>(token)] = true;
    }
    tokens_ += write.seen.size();
    return places;
  }
  /// Compares two tokens at one position that have nothing to do with each other: the later one
  /// came where the earlier was taken back, or another text has it.
  void compare_taken_back(double earlier, double later) { taken_back_.add(earlier, later); }
  void compare_texts(double one, double other) { texts_.add(one, other); }

  std::int64_t mismatches() const { return mismatches_; }
  /// Comparisons that fail, by name.
  std::string misfits() const {
    std::string names;
    const auto look = [&](const char* name, const Pairs& pairs) {
      if (pairs.empty()) return;
      const Fit fit = pairs.fit();
      if (!fit.fits) names += std::string(name) + " (" + fit.text() + ") ";
    };
    look("tokens under rejection", rejected_);
    look("tokens under coupled acceptance", coupled_);
    look("neighbours", next_);
    look("taken back and written again", taken_back_);
    look("two texts", texts_);
    if (mismatches_ > 0) names += std::to_string(mismatches_) + " mismatches ";
    return names;
  }
  std::string text() const {
    return std::to_string(tokens_) + " tokens, " + std::to_string(predicted_) + " predicted, " +
           std::to_string(uncertain_) + " too near to a tie, of others " +
           taken_back_.fit().text() + "; " + texts_.fit().text();
  }
  std::int64_t predicted() const { return predicted_; }
  std::int64_t uncertain() const { return uncertain_; }

 private:
  double random_unit() { return static_cast<double>(random_() >> 11) * 0x1p-53; }

  double place(const Law& law, TokenId token) {
    double below = 0.0;
    for (TokenId t = 0; t < token; ++t) below += law.probs[static_cast<std::size_t>(t)];
    return below + random_unit() * law.probs[static_cast<std::size_t>(token)];
  }

  // The argmax of probability over noise, or of probability.
  void predict(const Law& law, const Write& write, std::size_t position, TokenId token) {
    // The error of the engine's F32 logits, and of BF16 products on a GPU.
    const double margin = on_cuda() ? 0.05 : 1e-3;
    std::vector<double> score = law.probs;
    if (write.sampling.temperature > 0.0) {
      const std::vector<double> noise =
          coupled_noise({write.seed, write.stream, 0, position, write.epoch}, 0, letters);
      for (std::size_t t = 0; t < score.size(); ++t) score[t] /= noise[t];
    }
    const auto best = std::max_element(score.begin(), score.end()) - score.begin();
    double second = 0.0;
    for (std::size_t t = 0; t < score.size(); ++t) {
      if (std::cmp_not_equal(t, best)) second = std::max(second, score[t]);
    }
    if (law.near_edge || second > (1.0 - margin) * score[static_cast<std::size_t>(best)]) {
      ++uncertain_;
      return;
    }
    ++predicted_;
    if (std::cmp_not_equal(token, best)) ++mismatches_;
  }

  ModelReference target_;
  std::mt19937_64 random_{3};
  Pairs rejected_, coupled_, next_, taken_back_, texts_;
  std::size_t tokens_ = 0;
  std::int64_t predicted_ = 0, uncertain_ = 0, mismatches_ = 0;
};

// A sequence, and what the ledger knows of it.
struct Tale {
  Sequence sequence;
  std::vector<TokenId> tokens;
  std::uint64_t stream, epoch;
  std::vector<double> places = {};  ///< by position; below 0: not to be compared
  /// Places of tokens that were taken back for no reason of their own.
  std::map<std::size_t, std::vector<double>> taken_back = {};
  std::map<std::size_t, double> first = {};  ///< of the first token that was written there

  SequenceState& state() const { return SequenceAccess::impl(sequence)->state; }
  void cut(std::size_t length) {
    for (std::size_t i = length; i < places.size(); ++i) {
      if (places[i] >= 0.0) taken_back[i].push_back(places[i]);
    }
    places.resize(length);
    tokens.resize(length);
  }
};

class Programs {
 public:
  Programs(Engine& engine, Ledger& ledger, std::uint32_t number, StateFault fault)
      : engine_(engine), ledger_(ledger), seed_(number), random_(number), fault_(fault) {}

  void run(int operations) {
    open();
    while (operations-- > 0) {
      switch (below(16)) {
        case 0:
          open();
          break;
        case 1:
          fork();
          break;
        case 2:
          go_on_as_a_fork();
          break;
        case 3:
        case 4:
        case 5:
          take_back();
          break;
        case 6:
          engine_.drop_cache();
          break;
        default:
          write();
      }
      for (Tale& tale : tales_) {
        if (fault_ == StateFault::epochs_modulo_two) tale.state().epoch &= 1;
        const std::span<const TokenId> tokens = tale.sequence.tokens();
        ASSERT_TRUE(
            std::equal(tokens.begin(), tokens.end(), tale.tokens.begin(), tale.tokens.end()));
      }
    }
    compare_texts();
  }

  std::int64_t preempted = 0, stopped = 0, broken_off = 0, cancelled = 0;

 private:
  std::size_t below(std::size_t end) { return random_() % end; }
  bool one_in(std::size_t of) { return below(of) == 0; }
  Tale& any() { return tales_[below(tales_.size())]; }
  // Streams differ in their upper bits alone, or in the lower.
  std::uint64_t new_stream() {
    const std::uint64_t number = streams_++;
    return number % 2 + ((number / 2) << 16);
  }
  std::vector<TokenId> some_tokens(std::size_t least) {
    std::vector<TokenId> tokens(least + below(4));
    for (TokenId& token : tokens) token = static_cast<TokenId>(below(letters));
    return tokens;
  }

  void open() {
    if (tales_.size() >= most_tales) return;
    if (one_in(3)) {
      const std::vector<TokenId> tokens = some_tokens(2);
      tales_.push_back({engine_.prefix(tokens).begin(), tokens, new_stream(), 0,
                        std::vector<double>(tokens.size(), -1.0)});
    } else {
      tales_.push_back({engine_.new_sequence(), {}, new_stream(), 0});
    }
  }
  Sequence forked(const Tale& tale) {
    Sequence fork = tale.sequence.fork();
    SequenceState& state = SequenceAccess::impl(fork)->state;
    if (fault_ == StateFault::fork_without_epoch) state.epoch = 0;
    if (fault_ == StateFault::counts_after_fork) state.counts = TokenCounts(letters);
    return fork;
  }
  // Both go on, the fork with numbers of its own.
  void fork() {
    if (tales_.size() >= most_tales) return;
    const Tale& trunk = any();
    Tale branch{forked(trunk), trunk.tokens, new_stream(), trunk.epoch, trunk.places};
    std::fill(branch.places.begin(), branch.places.end(), -1.0);  // they are the trunk's
    tales_.push_back(std::move(branch));
  }
  // With the same numbers.
  void go_on_as_a_fork() {
    Tale& tale = any();
    tale.sequence = forked(tale);
  }
  void take_back() {
    Tale& tale = any();
    rewind(tale, below(tale.tokens.size() + 1));
  }
  void rewind(Tale& tale, std::size_t length) {
    SequenceState before = inside(engine_).new_state();
    before.take_text(tale.state());
    tale.sequence.rewind(static_cast<std::int32_t>(length));
    if (length < tale.tokens.size()) ++tale.epoch;
    tale.cut(length);
    SequenceState& state = tale.state();
    if (fault_ == StateFault::rewinds_counted_once) {
      state.epoch = std::min<std::uint64_t>(state.epoch, 1);
    }
    if (fault_ == StateFault::counts_after_rewind) state.counts = before.counts;
  }

  GenerateOptions some_options() {
    GenerateOptions options;
    options.seed = seed_;
    options.max_new_tokens = 1 + static_cast<std::int32_t>(below(24));
    const std::vector<Speculation> policies = {Plain{},       Chain{12}, Chain{12},
                                               Dyspec{},      Dyspec{6}, DyspecThreshold{0.1, 8},
                                               two_of_each(6)};
    options.speculation = policies[below(policies.size())];
    options.acceptance = one_in(2) ? Acceptance::coupled : Acceptance::rejection;
    options.sampling.temperature = std::array{0.0, 0.8, 1.2, 1.6}[below(4)];
    if (one_in(2)) options.sampling.repetition_penalty = 1.5;
    if (one_in(4)) options.sampling.top_k = 12;
    if (one_in(3)) {
      const char letter = static_cast<char>('a' + below(letters));
      options.stop = {std::string(1 + below(2), letter)};
    }
    return options;
  }

  // One text or several side by side.
  void write() {
    std::vector<std::size_t> chosen;
    // Many that are short as they begin are let in together, and have too little memory as they
    // end.
    const bool all = one_in(5);
    for (std::size_t t = 0; t < tales_.size(); ++t) {
      if (all || one_in(2)) chosen.push_back(t);
      if (all && tales_[t].tokens.size() > 3) rewind(tales_[t], 1 + below(3));
    }
    if (chosen.empty()) chosen.push_back(below(tales_.size()));
    std::vector<Request> requests;
    std::vector<bool> breaks_off, cancels;
    for (const std::size_t t : chosen) {
      Tale& tale = tales_[t];
      if (tale.tokens.size() > longest - 30) rewind(tale, 4);
      Request& request = requests.emplace_back();
      request.sequence = &tale.sequence;
      request.tokens = some_tokens(tale.tokens.empty() ? 1 : 0);
      request.options = some_options();
      if (all) request.options.max_new_tokens = 24;
      request.options.stream =
          fault_ == StateFault::streams_of_16_bits ? tale.stream & 0xffff : tale.stream;
      breaks_off.push_back(one_in(10));
      cancels.push_back(one_in(10));
      if (breaks_off.back()) {
        request.callback = [](std::int32_t, const Piece&) -> bool {
          throw std::runtime_error("the caller's own");
        };
      } else if (cancels.back()) {
        request.callback = [](std::int32_t, const Piece&) { return false; };
      }
    }
    std::vector<Outcome> outcomes = engine_.generate(requests);
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      note(tales_[chosen[i]], requests[i], outcomes[i], breaks_off[i]);
    }
  }

  void note(Tale& tale, const Request& request, const Outcome& outcome, bool breaks_off) {
    if (outcome.error) {
      ASSERT_TRUE(breaks_off) << error_of(outcome);
      ++broken_off;
      return;  // as if it had not been
    }
    const Generation& g = only(outcome);
    preempted += g.statistics.preemptions;
    cancelled += g.finish_reason == FinishReason::cancelled ? 1 : 0;
    Ledger::Write write{
        tale.tokens, g.tokens,  request.options.sampling, request.options.acceptance, seed_,
        tale.stream, tale.epoch};
    write.before.insert(write.before.end(), request.tokens.begin(), request.tokens.end());
    tale.tokens = write.before;
    tale.places.resize(tale.tokens.size(), -1.0);
    const bool stop = g.finish_reason == FinishReason::stop;
    if (stop) {
      ++stopped;
      for (const char letter : request.options.stop[0]) write.seen.push_back(letter - 'a');
    }
    const std::vector<double> places = ledger_.check(write);
    for (std::size_t i = 0; i < write.seen.size(); ++i) {
      const std::size_t position = tale.tokens.size();
      const double place = i < places.size() ? places[i] : -1.0;
      const auto old = tale.taken_back.find(position);
      if (old != tale.taken_back.end() && !old->second.empty() && place >= 0.0) {
        ledger_.compare_taken_back(old->second.back(), place);
        old->second.pop_back();  // once: counts of pairs are then independent
      }
      if (place >= 0.0) tale.first.emplace(position, place);
      tale.tokens.push_back(write.seen[i]);
      // What is left of a text with a stop text was chosen by what it is.
      tale.places.push_back(request.options.stop.empty() ? place : -1.0);
    }
    if (!stop) return;
    ++tale.epoch;
    tale.cut(write.before.size() + g.tokens.size());
    if (fault_ == StateFault::epoch_of_an_empty_stop && g.tokens.empty()) {
      --tale.state().epoch;
    }
  }

  // Compares texts whose streams differ in upper bits.
  void compare_texts() {
    for (std::size_t a = 0; a < tales_.size(); ++a) {
      for (std::size_t b = a + 1; b < tales_.size(); ++b) {
        if ((tales_[a].stream & 0xffff) != (tales_[b].stream & 0xffff)) continue;
        for (const auto& [position, place] : tales_[a].first) {
          const auto other = tales_[b].first.find(position);
          if (other != tales_[b].first.end()) ledger_.compare_texts(place, other->second);
        }
        return;  // each in one pair at most
      }
    }
  }

  Engine& engine_;
  Ledger& ledger_;
  // A seed of its own: by what the same numbers did to an earlier text a later one's sizes would be
  // chosen (GenerateOptions::stream).
  std::uint64_t seed_;
  std::mt19937 random_;
  StateFault fault_;
  std::vector<Tale> tales_;
  std::uint64_t streams_ = 0;
};

class RandomPrograms : public ::testing::Test {
 protected:
  // What the ledger has against so many programs; "" for nothing.
  std::string misfits(Engine& engine, StateFault fault, std::uint32_t programs, bool show = false) {
    Ledger ledger(pair_.path() / "target");
    std::size_t deepest = 0;
    inside(engine).observer = [&](const StepView& view) {
      deepest = std::max(deepest, view.verdict.path.size());
    };
    std::int64_t preempted = 0, stopped = 0, broken_off = 0, cancelled = 0;
    for (std::uint32_t number = 0; number < programs; ++number) {
      engine.drop_cache();
      Programs program(engine, ledger, number, fault);
      program.run(40);
      if (HasFatalFailure()) return "";
      preempted += program.preempted;
      stopped += program.stopped;
      broken_off += program.broken_off;
      cancelled += program.cancelled;
      // A quick build goes on only until the fault is noticed.
      if (quick && fault != StateFault::none && !ledger.misfits().empty()) break;
    }
    inside(engine).observer = {};
    if (show) {
      std::cout << ledger.text() << "; " << preempted << " preempted, " << stopped << " stopped, "
                << cancelled << " cancelled, " << broken_off << " broken off, paths of up to "
                << deepest << " tokens\n";
      EXPECT_GT(ledger.predicted(), 10 * ledger.uncertain());
      EXPECT_GT(deepest, 8u);
      for (const std::int64_t count : {preempted, stopped, cancelled, broken_off}) {
        EXPECT_GT(count, sanitized ? -1 : 0);
      }
    }
    return ledger.misfits();
  }

  const Alphabet pair_{0.15};
};

TEST_F(RandomPrograms, EveryTokenHasTheTargetsLaw) {
  Engine engine = Engine::load(pair_.options());
  EXPECT_EQ(misfits(engine, StateFault::none, sanitized ? 10 : quick ? 75 : 150, true), "");
  expect_nothing_leaked(engine);
}

TEST_F(RandomPrograms, FaultsOfStatesAreNoticed) {
  if (sanitized) GTEST_SKIP() << "no fault is planted there";
  Engine engine = Engine::load(pair_.options());
  for (const StateFault fault : {StateFault::epochs_modulo_two, StateFault::epoch_of_an_empty_stop,
                                 StateFault::fork_without_epoch, StateFault::rewinds_counted_once,
                                 StateFault::counts_after_rewind, StateFault::counts_after_fork,
                                 StateFault::streams_of_16_bits}) {
    const std::string found = misfits(engine, fault, 40);
    std::cout << static_cast<int>(fault) << ": " << found << "\n";
    EXPECT_NE(found, "") << "fault " << static_cast<int>(fault) << " was not noticed";
  }
}

// On the host: of a path's tokens, penalties know the first `counted`.
class CountsOfShortPaths final : public Verifier {
 public:
  explicit CountsOfShortPaths(std::int32_t counted) : counted_(counted) {}
  std::string name() const override { return "counts of short paths"; }
  void judge(const TokenTree& tree, TargetSource& target, const DistributionTable& draft,
             const StepKey& key, Verdict& verdict) override {
    class Rows final : public TargetSource {
     public:
      Rows(const CountsOfShortPaths& rule, const TokenTree& tree, TargetRows& rows)
          : rule_(rule), tree_(tree), rows_(rows) {}
      std::span<const float> distribution(std::int32_t node) override {
        std::int32_t last = node;
        while (tree_.depth[static_cast<std::size_t>(last)] > rule_.counted_)
          last = tree_.parent[static_cast<std::size_t>(last)];
        TokenCounts& counts = rows_.state().counts;
        const PathCounts path(rows_.state(), rows_.params(), tree_, last);
        process_logits(rows_.logits(node), rows_.params(), &counts, scratch_, probs_);
        return probs_;
      }
      TokenId argmax(std::int32_t node) override {
        const std::span<const float> probs = distribution(node);
        return static_cast<TokenId>(std::ranges::max_element(probs) - probs.begin());
      }

     private:
      const CountsOfShortPaths& rule_;
      const TokenTree& tree_;
      TargetRows& rows_;
      LogitsScratch scratch_;
      std::vector<float> probs_ = std::vector<float>(letters);
    } rows(*this, tree, dynamic_cast<TargetRows&>(target));
    rule_->judge(tree, rows, draft, key, verdict);
  }

 private:
  const std::int32_t counted_;
  NoiseCache noise_{letters};
  const std::unique_ptr<Verifier> rule_ = make_coupled_verifier(noise_);
};

// Penalties count the tokens of paths of up to 15 tokens, and none before.
TEST(LongPaths, ArePenalisedAsTheyGrow) {
  const Alphabet pair(0.05);
  Engine engine = Engine::load(pair.options());
  const auto misfits = [&](std::uint64_t texts) {
    Ledger ledger(pair.path() / "target");
    std::size_t long_ones = 0;
    inside(engine).observer = [&](const StepView& view) {
      long_ones += view.verdict.path.size() > 8 ? 1 : 0;
    };
    for (std::uint64_t text = 0; text < texts; ++text) {
      GenerateOptions options;
      options.seed = seed;
      options.stream = text;
      options.max_new_tokens = 16;
      options.speculation = Chain{15};
      options.acceptance = Acceptance::coupled;
      options.sampling.temperature = text % 3 == 0 ? 0.0 : 0.8;
      options.sampling.repetition_penalty = 1.6;
      const std::vector<TokenId> prompt = {static_cast<TokenId>(text % letters)};
      ledger.check({prompt, engine.generate(prompt, options).tokens, options.sampling,
                    options.acceptance, seed, text, 0});
    }
    inside(engine).observer = {};
    std::cout << long_ones << " paths of more than 8 tokens; " << ledger.misfits() << "\n";
    EXPECT_GT(long_ones, texts / 4);
    return ledger.misfits();
  };
  EXPECT_EQ(misfits(sanitized ? 20 : 300), "");
  if (on_cuda()) return;  // whose own faults tests/cuda plants
  EngineAccess access(engine);
  access.judge_by([] { return std::make_unique<CountsOfShortPaths>(15); });
  EXPECT_EQ(misfits(sanitized ? 20 : 300), "");
  access.judge_by([] { return std::make_unique<CountsOfShortPaths>(8); });
  EXPECT_NE(misfits(sanitized ? 20 : 300), "") << "counts of eight tokens were not noticed";
}

// From the ninth on siblings are judged by the eighth one's number.
struct LateSiblingsShareANumber : PhiloxDecisions {
  template <typename Outcome>
  auto operator()(RandomAddress at, const Outcome& outcome) const {
    if (at.stream == RandomStream::accept) at.index = std::min<std::uint64_t>(at.index, 7);
    return PhiloxDecisions::operator()(at, outcome);
  }
};

JudgedTree judged_tree(const StepView& view) {
  const TokenTree& tree = view.tree;
  const auto law_of = [](std::span<const float> row) {
    Law law{{row.begin(), row.end()}, {}, false};
    for (const double prob : law.probs) law.error.push_back(prob * 1e-6);
    return law;
  };
  JudgedTree judged{
      view.key, AcceptanceRule::rejection, tree.token, tree.parent, tree.depth, tree.rank, {}, {}};
  for (std::int32_t node = 0; node < tree.nodes(); ++node) {
    judged.target.push_back(law_of(view.target.distribution(node)));
    const bool has_children =
        std::find(tree.parent.begin(), tree.parent.end(), node) != tree.parent.end();
    judged.draft.push_back(has_children ? law_of(view.draft->distributions()->row(
                                              tree.candidate[static_cast<std::size_t>(node)]))
                                        : Law{});
  }
  return judged;
}

// Trees of twelve siblings of a draft that knows nothing of its target: many are refused, and each
// is judged by a number of its own.
TEST(ManySiblings, AreJudgedByNumbersOfTheirOwn) {
  if (on_cuda()) GTEST_SKIP() << "tests/cuda compares verdicts";
  const Alphabet pair(1.0);
  Engine engine = Engine::load(pair.options());
  const auto differing = [&](int texts) {
    int late = 0, certain = 0, steps = 0, differ = 0;
    inside(engine).observer = [&](const StepView& view) {
      if (view.tree.size() < 12) return;
      ++steps;
      const JudgedPath expected = reference_judge(judged_tree(view));
      if (!expected.certain) return;
      ++certain;
      const bool same = expected.rows == view.verdict.path && expected.bonus == view.verdict.bonus;
      differ += same ? 0 : 1;
      for (const std::int32_t node : expected.rows) {
        late += view.tree.rank[static_cast<std::size_t>(node)] >= 8 ? 1 : 0;
      }
    };
    GenerateOptions options;
    options.seed = seed;
    options.max_new_tokens = 12;
    options.speculation = SpecInferWidths{{12}};
    options.acceptance = Acceptance::rejection;
    options.sampling.temperature = 1.6;
    for (int text = 0; text < texts; ++text) {
      options.stream = static_cast<std::uint64_t>(text);
      engine.generate(std::vector<TokenId>{static_cast<TokenId>(text % letters)}, options);
    }
    inside(engine).observer = {};
    std::cout << steps << " steps, " << certain << " certain, " << late
              << " accepted as the ninth or later, " << differ << " differ\n";
    EXPECT_GT(late, texts / 10);
    EXPECT_GT(certain, steps * 9 / 10);
    return differ;
  };
  EXPECT_EQ(differing(300), 0);
  EngineAccess(engine).judge_by(
      [] { return std::make_unique<RejectionVerifier<LateSiblingsShareANumber>>(); });
  EXPECT_GT(differing(600), 0) << "siblings that share a number were not noticed";
}

}  // namespace
}  // namespace coppice::testing
