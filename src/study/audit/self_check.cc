#include <algorithm>
#include <cmath>
#include <list>
#include <memory>

#include "base/stopwatch.h"
#include "study/audit/tests.h"

namespace coppice::study {
namespace {

/// Most looks at one fault's texts: each has its share of the chance of a false alarm, so that
/// looking again and again finds no fault where there is none.
constexpr double most_looks = 16.0;
/// A fault that changes fewer texts than this share (with stated_power) does next to nothing here.
constexpr double idle_share = 0.01;
/// Texts of a fault have streams of their own: how many are drawn must say nothing about the texts
/// that the sound engine is tested on.
constexpr std::uint64_t fault_streams = std::uint64_t{1} << 32;

/// Largest share that `changed` of `count` leaves possible, with probability stated_power.
double largest_share(std::int64_t changed, std::int64_t count) {
  return changed >= count ? 1.0
                          : beta_quantile(static_cast<double>(changed) + 1.0,
                                          static_cast<double>(count - changed), stated_power);
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
  LawSampling* sound;  ///< the same texts of the engine without the fault
  FaultFinding finding = {};
  bool settled() const { return finding.caught || finding.idle; }
};

struct SelfCheck::State {
  std::list<LawSampling> sound;  ///< one for each setting
  std::list<Trial> trials;
  std::int64_t needed = 0;
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
  const auto sampling = [&] {
    return LawSampling(engine_, laws, request_.prompts, options, fault_streams);
  };
  LawSampling& sound = state_->sound.emplace_back(sampling());
  for (PlantedFault& fault : faults_for(EngineAccess(engine_), options.acceptance)) {
    Trial& trial = state_->trials.emplace_back(Trial{fault, options, sampling(), &sound});
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
    draw_to(*trial.sound, "sampling for comparison with planted faults");
    const bool first = trial.sampling.samples() == 0;
    {
      const FaultGuard guard(engine_);
      EngineAccess access(engine_);
      trial.fault.plant(access);
      draw_to(trial.sampling, cat("planted fault ", number, " of ", state_->trials.size(), ": ",
                                  trial.fault.name));
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
  finding.changed = trial.sampling.differs_from(*trial.sound);
  finding.most_bias = largest_share(finding.changed, finding.drawn);
  finding.idle = finding.most_bias <= idle_share;
  double unseen = 0.0;
  for (const EventFinding& event : events) unseen = std::max(unseen, largest_variation(event, stated_power));
  if (unseen > 0.0) finding.most_bias = std::min(finding.most_bias, unseen);
  finding.caught = worst.p_value <= significance_ / most_looks;
  if (finding.caught) {
    state_->needed =
        std::max(state_->needed, texts_needed(worst, finding.drawn, significance_));
  } else if (first) {
    compare(trial);
  }
  if (finding.caught) finding.idle = false;
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
  const TextFinding texts = compare_texts(engine_, request_.prompts, trial.options,
                                          request_.compared_tokens, [this] {
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

std::int64_t SelfCheck::needed() const { return state_->needed; }

std::vector<FaultFinding> SelfCheck::findings() const {
  std::vector<FaultFinding> all;
  for (const Trial& trial : state_->trials) all.push_back(trial.finding);
  return all;
}

}  // namespace coppice::study
