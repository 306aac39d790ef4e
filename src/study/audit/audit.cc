#include "study/audit/audit.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/error.h"
#include "base/stopwatch.h"
#include "engine/access.h"
#include "engine/check_speculation.h"
#include "engine/tree_plan.h"
#include "study/audit/tests.h"
#include "study/statistics.h"

namespace coppice::study {
namespace {

// Empty where some bias was sure to be seen.
std::string why_untested(const std::vector<EventFinding>& events) {
  bool contexts = false;
  for (const EventFinding& event : events) {
    if (event.tested()) return "";
    contexts = contexts || event.contexts > 0;
  }
  return contexts ? "no bias is sure to be seen in so few texts; draw more --samples"
                  : "no context has samples enough; draw more --samples";
}

/// Out of whatever test is under way.
struct Stopped {};

class Audit {
 public:
  Audit(Engine& engine, const AuditRequest& request) : engine_(engine), request_(request) {
    check(request.settings);
    if (request.prompts.empty()) throw_usage("audit: no prompt to continue; give one");
    if (!engine.has_draft()) throw_usage("audit: it needs a draft model; give --draft DIR");
    if (request.samples < 0 || request.samples > most_samples) {
      throw_usage(cat("audit: ", request.samples, " samples; draw 1 to ", most_samples,
                      ", or 0 for automatic"));
    }
    for (const AuditSetting& setting : request.settings)
      EngineAccess(engine).check(setting.options);
    report_.device = EngineAccess(engine).device().name();
    report_.dtype = name_of(EngineAccess(engine).device().compute_dtype());
    report_.prompts = static_cast<std::int64_t>(request.prompts.size());
    report_.seed = request.seed;
    report_.temperature = request.settings.front().options.sampling.temperature;
    report_.significance =
        familywise_error / (tested_tokens * static_cast<double>(request.settings.size()));
  }

  AuditReport run() {
    try {
      test();
    } catch (const Stopped&) {
      report_.stopped = true;
    }
    return std::move(report_);
  }

 private:
  void test() {
    samples_ = request_.samples > 0 ? request_.samples : affordable_samples();
    test_laws();
    compare_all_texts();
    if (request_.self_check) check_self();
  }

  GenerateOptions seeded(const AuditSetting& setting) const {
    GenerateOptions options = setting.options;
    options.seed = request_.seed;
    return options;
  }

  // The laws under a setting's filters, shared by all settings with the same.
  TargetLaws& laws_of(const GenerateOptions& o) {
    const SamplingParams& p = o.sampling;
    const auto key = std::tuple(p.temperature, p.top_k, p.top_p, p.min_p, p.repetition_penalty);
    return laws_.try_emplace(key, engine_, o).first->second;
  }

  std::function<void()> ticker(const std::string& what, std::int64_t total) {
    return [this, what, total, done = std::int64_t{0}]() mutable {
      ++done;
      if (request_.stopped()) throw Stopped();
      if (done % 16 == 0 || done == total) {
        request_.tell(what, static_cast<double>(done), static_cast<double>(total));
      }
    };
  }

  // How many samples the usual time allows, from a few texts of each setting. It looks at no
  // token, so choosing by the clock biases no test.
  std::int64_t affordable_samples() {
    constexpr std::int64_t tried = 24;
    constexpr double share_of_faults = 0.7;  // most are caught before all samples are drawn
    double seconds = 0.0;                    // of one sample of everything
    std::map<Acceptance, double> slowest;
    for (const AuditSetting& setting : request_.settings) {
      const GenerateOptions options = seeded(setting);
      LawSampling sampling(engine_, laws_of(options), request_.prompts, options);
      sampling.draw(tried, [] {});  // the first texts also fill caches and record passes
      const double start = now_seconds();
      sampling.draw(tried, [] {});
      const double one = (now_seconds() - start) / tried;
      seconds += one;
      double& most = slowest[options.acceptance];
      most = std::max(most, one);
    }
    if (request_.self_check) {
      for (const auto& [acceptance, one] : slowest) {
        const auto faults =
            static_cast<double>(faults_for(EngineAccess(engine_), acceptance).size());
        seconds += share_of_faults * faults * one;
      }
    }
    constexpr double most_affordable = 100000.0;
    return std::max(fewest_samples, static_cast<std::int64_t>(
                                        std::min(most_affordable, request_.seconds / seconds)));
  }

  void test_laws() {
    std::vector<double> p_values;
    for (const AuditSetting& setting : request_.settings) {
      const GenerateOptions options = seeded(setting);
      LawSampling sampling(engine_, laws_of(options), request_.prompts, options);
      sampling.draw(samples_, ticker("sampling " + setting.name, samples_));
      LawFinding finding;
      finding.setting = setting.name;
      finding.samples = sampling.samples();
      finding.accepted_length = sampling.drawn().accepted_length();
      finding.tree_size_mean = sampling.drawn().tree_size();
      finding.events = sampling.test(report_.significance);
      finding.not_tested = why_untested(finding.events);
      report_.all_tested = report_.all_tested && finding.not_tested.empty();
      sampling.check_passes(finding);
      for (const EventFinding& event : finding.events) p_values.push_back(event.p_value);
      report_.laws.push_back(std::move(finding));
    }
    const std::vector<double> adjusted = holm_adjusted(p_values);
    auto next = adjusted.begin();
    for (LawFinding& finding : report_.laws) {
      finding.holds = finding.pass_variation_largest <= finding.pass_variation_bound;
      for (EventFinding& event : finding.events) {
        event.biased = *next++ <= familywise_error;
        finding.holds = finding.holds && !event.biased;
      }
      report_.law_holds = report_.law_holds && finding.holds;
    }
  }

  void compare_all_texts() {
    for (const bool coupled : {false, true}) {
      std::vector<std::string> seen;
      for (const AuditSetting& setting : request_.settings) {
        GenerateOptions options = seeded(setting);
        if (!coupled) {
          options.sampling.temperature = 0.0;
          options.acceptance = Acceptance::rejection;
        } else if (options.acceptance != Acceptance::coupled) {
          continue;
        }
        // Settings that differ by acceptance alone are one at temperature 0.
        std::string name = coupled ? setting.name : name_setting(options) + ", temperature 0";
        if (std::ranges::find(seen, name) != seen.end()) continue;
        seen.push_back(name);
        TextFinding finding =
            compare_texts(engine_, request_.prompts, options, request_.compared_tokens,
                          ticker("comparing texts, " + name, report_.prompts));
        finding.setting = std::move(name);
        report_.texts_hold = report_.texts_hold && finding.holds;
        report_.all_tested = report_.all_tested && finding.not_tested.empty();
        report_.texts.push_back(std::move(finding));
      }
    }
  }

  void check_self() {
    report_.self_check_done = true;
    for (const Acceptance acceptance : {Acceptance::rejection, Acceptance::coupled}) {
      // The largest trees give faults the most to break.
      const LawFinding* largest = nullptr;
      const AuditSetting* chosen = nullptr;
      for (std::size_t s = 0; s < request_.settings.size(); ++s) {
        if (request_.settings[s].options.acceptance != acceptance) continue;
        if (largest != nullptr && report_.laws[s].tree_size_mean <= largest->tree_size_mean)
          continue;
        largest = &report_.laws[s];
        chosen = &request_.settings[s];
      }
      if (chosen == nullptr) continue;
      for (const PlantedFault& fault : faults_for(EngineAccess(engine_), acceptance)) {
        report_.faults.push_back(catch_fault(*chosen, fault));
      }
    }
    report_.self_check_holds =
        std::ranges::any_of(report_.faults, [](const FaultFinding& f) { return f.caught; });
  }

  // Draws with the fault until it is seen, at most as many texts as without it.
  FaultFinding catch_fault(const AuditSetting& setting, const PlantedFault& fault) {
    const GenerateOptions options = seeded(setting);
    LawSampling sampling(engine_, laws_of(options), request_.prompts, options);
    FaultFinding finding;
    finding.setting = setting.name;
    finding.fault = fault.name;
    const auto tick = ticker("planted: " + fault.name, samples_);
    for (const std::int64_t parts : {8, 4, 2, 1}) {
      const std::int64_t wanted = samples_ / parts - sampling.samples();
      if (wanted < 1) continue;
      {
        const FaultGuard guard(engine_);
        EngineAccess access(engine_);
        fault.plant(access);
        sampling.draw(wanted, tick);
      }
      const auto events = sampling.test(report_.significance);
      const EventFinding& worst =
          *std::ranges::min_element(events, {}, [](const auto& e) { return e.p_value; });
      finding.event = worst.event;
      static_cast<Fit&>(finding) = worst;
      finding.drawn = sampling.samples();
      finding.caught = worst.p_value <= report_.significance;
      if (finding.caught) break;
    }
    return finding;
  }

  Engine& engine_;
  const AuditRequest& request_;
  std::int64_t samples_ = 0;
  AuditReport report_;
  std::map<std::tuple<double, std::int32_t, double, double, double>, TargetLaws> laws_;
};

}  // namespace

std::string name_setting(const GenerateOptions& options) {
  std::string size;
  const std::int32_t asked = asked_size(options.speculation);
  if (asked > 0) {
    size = cat(" ", asked);
  } else if (sized_by_costs(options.speculation)) {
    size = " auto";
  }
  return cat(name_of(options.speculation), size,
             options.sampling.temperature > 0.0 ? cat(", ", name_of(options.acceptance)) : "");
}

void check(const std::vector<AuditSetting>& settings) {
  if (settings.empty()) throw_usage("audit: no setting to test; name a policy");
  for (const AuditSetting& setting : settings) {
    const GenerateOptions& options = setting.options;
    if (std::holds_alternative<Plain>(options.speculation)) {
      throw_usage("audit: policy none does not speculate: nothing to audit; name another one");
    }
    if (options.sampling.temperature == 0.0) {
      throw_usage(
          "audit: temperature 0 has no law to sample from; give one above 0 (texts at temperature "
          "0 are compared in any case)");
    }
    if (options.acceptance == Acceptance::automatic) {
      throw_usage("audit: acceptance auto is one of two rules; name rejection or coupled");
    }
    options.validate();
  }
}

AuditReport run_audit(Engine& engine, const AuditRequest& request) {
  return Audit(engine, request).run();
}

}  // namespace coppice::study
