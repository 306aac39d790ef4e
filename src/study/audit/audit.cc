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

class Audit {
 public:
  Audit(Engine& engine, const AuditRequest& request) : engine_(engine), request_(request) {
    check(request.settings);
    if (request.prompts.empty()) throw_usage("audit: no prompt to continue; give one");
    if (!engine.has_draft()) throw_usage("audit: it needs a draft model; give --draft MODEL");
    if (request.samples < 0 || request.samples > most_samples) {
      throw_usage(cat("audit: ", request.samples, " samples; draw 1 to ", most_samples,
                      ", or 0 for automatic"));
    }
    for (const AuditSetting& setting : request.settings)
      EngineAccess(engine).check(setting.options);
    report_.device = EngineAccess(engine).device().name();
    report_.dtype = compute_name(*EngineAccess(engine).target().model);
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
    compare_all_texts();
    const double per_sample = request_.samples > 0 ? 0.0 : seconds_of_sample();
    samples_ = request_.samples;
    if (request_.self_check) check_self(per_sample);
    if (request_.samples == 0) {
      const double left = request_.time_limit - (now_seconds() - start_);
      const double seconds = std::min(left, request_.seconds);
      const auto affordable = static_cast<std::int64_t>(
          std::clamp(seconds / per_sample, 0.0, static_cast<double>(most_samples)));
      samples_ = std::max({samples_, affordable, fewest_samples});
    }
    test_laws();
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

  // Times one sample of every setting, from a few texts. It looks at no token, so choosing by the
  // clock biases no test.
  double seconds_of_sample() {
    constexpr std::int64_t tried = 24;
    double seconds = 0.0;
    for (const AuditSetting& setting : request_.settings) {
      const GenerateOptions options = seeded(setting);
      LawSampling sampling(engine_, laws_of(options), request_.prompts, options);
      sampling.draw(tried, [] {});  // the first texts also fill caches and record passes
      const double start = now_seconds();
      sampling.draw(tried, [] {});
      seconds += (now_seconds() - start) / tried;
    }
    return seconds;
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

  // The largest trees give faults the most to break.
  const AuditSetting* largest_of(Acceptance acceptance) const {
    const AuditSetting* largest = nullptr;
    const auto size = [](const AuditSetting& setting) {
      const Speculation& speculation = setting.options.speculation;
      return sized_by_costs(speculation) ? largest_tree_size : asked_size(speculation);
    };
    for (const AuditSetting& setting : request_.settings) {
      if (setting.options.acceptance != acceptance) continue;
      if (largest == nullptr || size(setting) > size(*largest)) largest = &setting;
    }
    return largest;
  }

  // Planted faults say how many samples it takes to see one. The sound engine is tested once, with
  // that many, on texts of other streams: looking at faulty ones again and again biases no test.
  void check_self(double per_sample) {
    report_.self_check_done = true;
    report_.asked_bias = request_.smallest_bias;
    SelfCheck check(engine_, request_, report_.significance);
    for (const Acceptance acceptance : {Acceptance::rejection, Acceptance::coupled}) {
      const AuditSetting* setting = largest_of(acceptance);
      if (setting == nullptr) continue;
      const GenerateOptions options = seeded(*setting);
      check.add(setting->name, options, laws_of(options));
    }
    const MakeTicker ticks = [this](const std::string& what, std::int64_t all) {
      return ticker(what, all);
    };
    if (request_.samples > 0) {
      for (const std::int64_t parts : {8, 4, 2, 1}) {
        if (request_.samples >= parts) check.look(request_.samples / parts, ticks);
      }
    } else {
      std::int64_t drawn = fewest_samples;
      check.look(drawn, ticks);
      while (check.unseen() > 0 && !report_.time_ran_out) {
        const std::int64_t next = 2 * drawn;
        const double then = now_seconds() - start_ + check.seconds_of_look(next - drawn) +
                            static_cast<double>(next) * per_sample;
        report_.time_ran_out = then > request_.time_limit || next > most_samples;
        if (report_.time_ran_out) break;
        check.look(next, ticks);
        drawn = next;
      }
      const double left = std::max(0.0, request_.time_limit - (now_seconds() - start_));
      const auto most =
          static_cast<std::int64_t>(std::min(left / per_sample, static_cast<double>(most_samples)));
      report_.time_ran_out = report_.time_ran_out || check.needed() > std::max(drawn, most);
      samples_ = std::max(drawn, std::min(check.needed(), most));
    }
    report_.faults = check.findings();
    report_.self_check_holds =
        check.unseen() == 0 &&
        std::ranges::any_of(report_.faults, [](const FaultFinding& f) { return f.caught; });
  }

  Engine& engine_;
  const AuditRequest& request_;
  const double start_ = now_seconds();
  std::int64_t samples_ = 0;
  AuditReport report_;
  std::map<std::tuple<double, std::int32_t, double, double, double>, TargetLaws> laws_;
};

}  // namespace

double AuditReport::smallest_bias() const {
  double bias = laws.empty() ? 1.0 : 0.0;
  for (const LawFinding& law : laws) {
    for (const EventFinding& event : law.events) bias = std::max(bias, event.smallest_bias);
  }
  return bias;
}

double AuditReport::smallest_bias_of_first() const {
  double bias = laws.empty() ? 1.0 : 0.0;
  for (const LawFinding& law : laws) {
    bias = std::max(bias, law.events.empty() ? 1.0 : law.events.front().smallest_bias);
  }
  return bias;
}

const char* name_of(AuditVerdict verdict) {
  switch (verdict) {
    case AuditVerdict::lossless:
      return "lossless";
    case AuditVerdict::biased:
      return "biased";
    case AuditVerdict::undecided:
      break;
  }
  return "undecided";
}

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
