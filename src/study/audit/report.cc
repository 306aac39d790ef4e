#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "study/audit/audit.h"
#include "study/figures/text.h"
#include "study/files/members.h"

namespace coppice::study {
namespace {

using Json = nlohmann::ordered_json;

// Escaped like a JSON string, so that it stays on its line.
std::string token_text(const Engine& engine, TokenId token) {
  if (!engine.has_tokenizer()) return std::to_string(token);
  return Json(engine.detokenize(std::span<const TokenId>(&token, 1)))
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string state_of(const LawFinding& law) {
  if (!law.holds) return "BIASED";
  return law.not_tested.empty() ? "no bias seen" : "not tested: " + law.not_tested;
}

std::string law_section(const AuditReport& report) {
  std::string text = line(
      "The law of sampled text, at temperature %g. The first %d tokens behind %lld prompts are "
      "compared\nwith the target's own law from plain passes. Chance of a false alarm, all tests "
      "together: %g;\none test alarms below p = %.1e (Holm). TV: total variation, measured "
      "(expected of an unbiased\nsampler). Smallest bias: the TV that would be seen with "
      "probability %g.\n\n",
      report.temperature, tested_tokens, static_cast<long long>(report.prompts), familywise_error,
      report.significance, stated_power);
  for (const LawFinding& law : report.laws) {
    text += line("%s: %lld texts, accepted length %.2f, tree size %.1f: %s\n", law.setting.c_str(),
                 static_cast<long long>(law.samples), law.accepted_length, law.tree_size_mean,
                 state_of(law).c_str());
    text += line("  %-16s %8s %5s %10s %5s %9s  %-15s %s\n", "event", "samples", "laws",
                 "chi-square", "df", "p", "TV", "smallest bias");
    for (const EventFinding& e : law.events) {
      text += line("  %-16s %8.0f %5lld %10.1f %5.0f %9.2g  %.4f (%.4f) ", e.event.c_str(),
                   e.samples, static_cast<long long>(e.contexts), e.chi_square, e.degrees,
                   e.p_value, e.total_variation, e.expected_variation);
      text += e.tested() ? line("%.4f", e.smallest_bias) : "not tested";
      if (e.biased) text += "  BIASED";
      if (e.impossible > 0) {
        text += line(", %lld impossible", static_cast<long long>(e.impossible));
      }
      text += '\n';
    }
    text += line(
        "  passes: the target's law at %lld tree nodes against plain passes: TV %.2g on "
        "average, at most %.2g",
        static_cast<long long>(law.pass_nodes), law.pass_variation_mean,
        law.pass_variation_largest);
    if (law.pass_variation_bound < 1.0)
      text += line(" (rounding allows %.2g)", law.pass_variation_bound);
    if (law.pass_variation_largest > law.pass_variation_bound) text += "  WRONG";
    text += "\n\n";
  }
  return text;
}

std::string state_of(const FaultFinding& fault, double asked_bias) {
  if (fault.caught) return "seen";
  return fault.small ? line("below %g", asked_bias) : "NOT SEEN";
}

std::string fault_section(const AuditReport& report) {
  if (!report.self_check_done) return "Planted faults: not tried.\n\n";
  std::string text = line(
      "Planted faults, and whether the same tests see them. bias: the largest that the texts "
      "leave\n"
      "possible for a fault that was not seen, with probability %g; below %g it need not be.\n\n",
      stated_power, report.asked_bias);
  std::string setting;
  for (const FaultFinding& f : report.faults) {
    if (f.setting != setting) {
      setting = f.setting;
      text += line("%s:\n  %-52s %-10s %8s %9s %7s %7s  %s\n", setting.c_str(), "fault", "",
                   "samples", "p", "TV", "bias", "test");
    }
    text +=
        line("  %-52s %-10s %8lld %9.2g %7.4f %7s  %s\n", f.fault.c_str(),
             state_of(f, report.asked_bias).c_str(), static_cast<long long>(f.drawn), f.p_value,
             f.total_variation, f.caught ? "" : line("%.4f", f.most_bias).c_str(), f.event.c_str());
  }
  return text + '\n';
}

std::string text_section(const AuditReport& report, const Engine& engine) {
  std::string text =
      "Texts that must equal plain decoding's, token for token. A near-tie is a divergence whose "
      "logit\ngap rounding explains (2 u sqrt(4 layers + 1) times the best logit's distance from "
      "the mean).\n\n";
  for (const TextFinding& t : report.texts) {
    if (!t.not_tested.empty()) {
      text += line("%s: not tested: %s\n", t.setting.c_str(), t.not_tested.c_str());
      continue;
    }
    const auto ties =
        std::ranges::count_if(t.divergences, [](const AuditDivergence& d) { return d.near_tie; });
    text +=
        line("%s: %lld tokens, accepted length %.2f, %zu divergences, %lld of them near-ties%s\n",
             t.setting.c_str(), static_cast<long long>(t.tokens), t.accepted_length,
             t.divergences.size(), static_cast<long long>(ties), t.holds ? "" : ": WRONG");
    if (t.tokens < t.asked_tokens) {
      text += line("  only %lld of %lld tokens were compared: %s ended texts\n",
                   static_cast<long long>(t.tokens), static_cast<long long>(t.asked_tokens),
                   t.ended_early.c_str());
    }
    for (const AuditDivergence& d : t.divergences) {
      text += line("  prompt %d, token %d: ", d.prompt + 1, d.position + 1) +
              token_text(engine, d.plain) + " became " + token_text(engine, d.speculative) +
              line(", gap %.2g (bound %.2g)%s\n", d.gap, d.bound,
                   d.near_tie ? ", near-tie" : ": WRONG");
    }
  }
  return text + '\n';
}

// What the samples would have shown, if anything.
std::string visible_bias(const AuditReport& report) {
  const double first = report.smallest_bias_of_first(), any = report.smallest_bias();
  if (first >= 1.0) return "no bias of sampled text was sure to be seen";
  std::string text = line(
      "a bias of %.3f or more (total variation) of the first token would have been seen", first);
  text += any < 1.0
              ? line(", of %.3f of any of the first %d,", any, tested_tokens)
              : line(", of some later one of the first %d none was sure to be,", tested_tokens);
  return text + line(" with probability %g", stated_power);
}

std::string verdict(const AuditReport& report) {
  const auto count = [&](auto is) { return std::ranges::count_if(report.faults, is); };
  const auto seen = count([](const FaultFinding& f) { return f.caught; });
  const auto small = count([](const FaultFinding& f) { return f.small; });
  const auto planted = static_cast<std::ptrdiff_t>(report.faults.size());
  std::string faults = line("%td of %td planted faults were seen", seen, planted);
  if (small > 0) faults += line(", %td bias less than %g here", small, report.asked_bias);
  if (report.lossless()) {
    return cat("Lossless as far as these tests see: ", visible_bias(report),
               "; texts equal plain decoding's; ",
               report.self_check_done ? faults : "the tests themselves were not checked", ".\n");
  }
  if (report.verdict() == AuditVerdict::biased) {
    std::string text = "NOT lossless:";
    if (!report.law_holds) text += " the law of sampled text is not the target's;";
    if (!report.texts_hold) text += " texts differ from plain decoding's beyond rounding;";
    text.back() = '.';
    return text + '\n';
  }
  std::string text = "NOT shown lossless: no bias was found, but ";
  if (report.self_check_done && !(report.self_check_holds && report.resolves())) {
    text += cat(report.time_ran_out ? "the time limit came too early (--time-limit gives more): "
                                    : "the samples were too few (more --samples show more): ",
                faults, "; ");
  }
  if (!report.all_tested) text += "what is \"not tested\" above may be anything; ";
  return cat(text, visible_bias(report), ".\n");
}

/// Findings as JSON, with null for reasons that there are none of.
Json json_of(const auto& findings, std::initializer_list<const char*> reasons) {
  Json list = findings;
  for (Json& one : list) {
    for (const char* reason : reasons) {
      if (one[reason] == "") one[reason] = nullptr;
    }
  }
  return list;
}

}  // namespace

std::string to_text(const AuditReport& report, const Engine& engine) {
  return line("Audit on %s, %s, seed %llu\n\n", report.device.c_str(), report.dtype.c_str(),
              static_cast<unsigned long long>(report.seed)) +
         text_section(report, engine) + fault_section(report) + law_section(report) +
         verdict(report);
}

std::string to_json(const AuditReport& report) {
  return Json{{"lossless", report.lossless()},
              {"verdict", name_of(report.verdict())},
              {"smallest_bias", report.smallest_bias()},
              {"smallest_bias_of_first_token", report.smallest_bias_of_first()},
              {"asked_bias", report.self_check_done ? Json(report.asked_bias) : Json()},
              {"law_holds", report.law_holds},
              {"texts_hold", report.texts_hold},
              {"all_tested", report.all_tested},
              {"self_check", report.self_check_done ? Json(report.self_check_holds) : Json()},
              {"time_ran_out", report.time_ran_out},
              {"device", report.device},
              {"dtype", report.dtype},
              {"seed", report.seed},
              {"temperature", report.temperature},
              {"prompts", report.prompts},
              {"familywise_error", familywise_error},
              {"significance", report.significance},
              {"power", stated_power},
              {"laws", json_of(report.laws, {"not_tested"})},
              {"texts", json_of(report.texts, {"not_tested", "ended_early"})},
              {"faults", report.faults},
              {"version", version()}}
             .dump(-1, ' ', false, Json::error_handler_t::replace) +
         "\n";
}

}  // namespace coppice::study
