#include <algorithm>
#include <cmath>
#include <list>
#include <memory>

#include "base/error.h"
#include "base/stopwatch.h"
#include "study/audit/tests.h"

namespace coppice::study {
namespace {

/// Most looks at one fault's texts: each has its share of the chance of a false alarm, so that
/// looking again and again finds no fault where there is none.
constexpr double most_looks = 16.0;
/// Texts of a fault have streams of their own: how many are drawn must say nothing about the texts
/// that the sound engine is tested on.
constexpr std::uint64_t fault_streams = std::uint64_t{1} << 32;

/// What an unseen fault may bias at most, with stated_power over all looks together; 1 if nothing
/// was tested.
double possible_bias(const std::vector<EventFinding>& events) {
  if (events.empty() || !(events.front().degrees > 0.0)) return 1.0;
  double bias = 0.0;
  for (const EventFinding& event : events) {
    bias = std::max(bias, largest_variation(event, 1.0 - (1.0 - stated_power) / most_looks));
  }
  return bias;
}

/// Texts with which a test that saw this sees it again with probability stated_power.
std::int64_t texts_needed(const EventFinding& event, std::int64_t drawn, double significance) {
  const auto n = static_cast<double>(drawn);
  double factor = 2.0;
  if (event.impossible > 0) {
    factor = -std::log(1.0 - stated_power) / static_cast<double>(event.impossible);
  } else if (event.degrees > 0.0 && event.chi_square > event.degrees) {
    factor = detectable_noncentrality(event.degrees, significance, stated_power) /
             (event.chi_square - event.degrees);
  }
  return static_cast<std::int64_t>(std::ceil(n * std::clamp(factor, 1.0, 2.0)));
}

}  // namespace

/// One fault under the setting that it is planted in.
struct SelfCheck::Trial {
  PlantedFault fault;
  GenerateOptions options;
  LawSampling sampling;
  FaultFinding finding = {};
  bool settled() const { return finding.caught || finding.small; }
};

struct SelfCheck::State {
  std::list<Trial> trials;
  std::int64_t needed = 0, resolving = 0;
  double seconds = 0.0;  ///< spent on the last look
  std::int64_t texts = 0;
};

SelfCheck::SelfCheck(Engine& engine, const AuditRequest& request, double significance)
    : engine_(engine),
      request_(request),
      significance_(significance),
      state_(std::make_unique<State>()) {}
SelfCheck::~SelfCheck() = default;

void SelfCheck::add(const std::string& setting, const GenerateOptions& options, TargetLaws& laws) {
  for (const PlantedFault& fault : faults_for(EngineAccess(engine_), options.acceptance)) {
    Trial& trial = state_->trials.emplace_back(Trial{
        fault, options, LawSampling(engine_, laws, request_.prompts, options, fault_streams)});
    trial.finding.setting = setting;
    trial.finding.fault = fault.name;
  }
}

void SelfCheck::look(std::int64_t samples, const MakeTicker& ticker) {
  const double start = now_seconds();
  std::int64_t texts = 0;
  const auto draw_to = [&](LawSampling& sampling, const std::string& what) {
    const std::int64_t more = samples - sampling.samples();
    if (more < 1) return;
    sampling.draw(more, ticker(what, more));
    sampling.rest();
    texts += more;
  };
  std::size_t number = 0;
  for (Trial& trial : state_->trials) {
    ++number;
    if (trial.settled()) continue;
    const bool first = trial.sampling.samples() == 0;
    {
      const FaultGuard guard(engine_);
      EngineAccess access(engine_);
      trial.fault.plant(access);
      draw_to(trial.sampling,
              cat("planted fault ", number, " of ", state_->trials.size(), ": ", trial.fault.name));
    }
    judge(trial, first);
  }
  state_->seconds = now_seconds() - start;
  state_->texts = texts;
}

void SelfCheck::judge(Trial& trial, bool first) {
  FaultFinding& finding = trial.finding;
  finding.drawn = trial.sampling.samples();
  const std::vector<EventFinding> events = trial.sampling.test(significance_);
  const EventFinding& worst =
      *std::ranges::min_element(events, {}, [](const auto& e) { return e.p_value; });
  static_cast<Fit&>(finding) = worst;
  finding.event = worst.event;
  finding.most_bias = possible_bias(events);
  // Bins grow in number with the samples, and the bias that is sure to be seen falls a little
  // slower than by their root.
  constexpr double margin = 1.2;
  const double bias = events.front().smallest_bias / request_.smallest_bias;
  state_->resolving = std::max(
      state_->resolving, static_cast<std::int64_t>(
                             std::ceil(margin * bias * bias * static_cast<double>(finding.drawn))));
  finding.caught = worst.p_value <= significance_ / most_looks;
  if (finding.caught) {
    state_->needed = std::max(state_->needed, texts_needed(worst, finding.drawn, significance_));
  } else if (first) {
    compare(trial);
  }
  finding.small = !finding.caught && finding.most_bias <= request_.smallest_bias;
  trial.sampling.rest();
}

// What needs no sampling sees some faults at once.
void SelfCheck::compare(Trial& trial) {
  FaultFinding& finding = trial.finding;
  const FaultGuard guard(engine_);
  EngineAccess access(engine_);
  trial.fault.plant(access);
  LawFinding passes;
  trial.sampling.check_passes(passes);
  if (passes.pass_variation_largest > passes.pass_variation_bound) {
    finding.caught = true;
    finding.event = "passes";
    return;
  }
  if (trial.options.acceptance != Acceptance::coupled) return;
  const TextFinding texts =
      compare_texts(engine_, request_.prompts, trial.options, request_.compared_tokens, [this] {
        if (request_.stopped()) throw Stopped();
      });
  if (texts.holds) return;
  finding.caught = true;
  finding.event = "texts";
}

std::size_t SelfCheck::unseen() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(state_->trials, [](const Trial& t) { return !t.settled(); }));
}

double SelfCheck::seconds_of_look(std::int64_t texts) const {
  if (state_->texts == 0) return 0.0;
  return static_cast<double>(texts) * static_cast<double>(unseen()) * state_->seconds /
         static_cast<double>(state_->texts);
}

std::int64_t SelfCheck::needed() const { return std::max(state_->needed, state_->resolving); }

std::vector<FaultFinding> SelfCheck::findings() const {
  std::vector<FaultFinding> all;
  for (const Trial& trial : state_->trials) all.push_back(trial.finding);
  return all;
}

}  // namespace coppice::study
