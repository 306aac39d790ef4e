#include "study/advise_report.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "study/text_line.h"

namespace coppice::study {
namespace {

using Json = nlohmann::ordered_json;

std::string name_of_size(std::int32_t size) { return size > 0 ? std::to_string(size) : "auto"; }

std::string row(const Prediction& p, bool advised) {
  const bool plain = p.policy == Policy::none;
  return line("  %-8s %5s %9.2f %9.1f %9.1f %9.1f %10.1f %9.2f%s\n",
              plain ? "plain" : name_of(p.policy), plain ? "" : name_of_size(p.tree_size).c_str(),
              p.accepted_length, 1e6 * p.draft_seconds, 1e6 * p.verify_seconds,
              1e6 * p.other_seconds, p.tokens_per_second, p.speedup, advised ? "  <" : "");
}

Json json_of(const Prediction& p) {
  return {{"policy", name_of(p.policy)},
          {"tree_size", p.tree_size},
          {"accepted_length", p.accepted_length},
          {"tree_size_mean", p.nodes},
          {"seconds",
           {{"draft", p.draft_seconds}, {"verify", p.verify_seconds}, {"other", p.other_seconds}}},
          {"tokens_per_second", p.tokens_per_second},
          {"speedup", p.speedup}};
}

// Of dyspec's sizes in the check, where a fixed one is advised.
bool automatic_is_faster(const Advice& advice) {
  double automatic = 0.0, advised = 0.0;
  for (const CheckedPrediction& c : advice.checks) {
    if (c.policy == Policy::dyspec && c.tree_size == 0) automatic = c.measured;
    if (c.policy == advice.advised.policy && c.tree_size == advice.advised.tree_size) {
      advised = c.measured;
    }
  }
  return advice.pays && advice.advised.tree_size > 0 && advised > 0.0 && automatic > advised;
}

}  // namespace

std::string policy_options(const Prediction& advised) {
  if (advised.policy == Policy::none) return "--policy none";
  return cat("--policy ", name_of(advised.policy), " --tree-size ", advised.tree_size);
}

std::string to_text(const Advice& advice, const std::string& command) {
  std::string text = line(
      "On %s, %s, at temperature %g, %s; texts of about %d tokens\n\n"
      "  target: %.0f us for one token, %.0f us for 17 at a time; draft: %.0f us for one\n",
      advice.device.c_str(), advice.dtype.c_str(), advice.temperature, name_of(advice.acceptance),
      advice.prefix, 1e6 * advice.target_seconds, 1e6 * advice.target_wide_seconds,
      1e6 * advice.draft_seconds);
  text +=
      line("  sampled steps took %.2f (plain), %.2f (17 at a time), %.2f (draft) times that\n\n",
           advice.calibration.plain.at(1), advice.calibration.verify.at(17),
           advice.calibration.draft.at(1));
  text += line("  %-8s %5s %9s %9s %9s %9s %10s %9s\n", "policy", "size", "accepted", "draft us",
               "verify us", "other us", "tokens/s", "speed-up");
  text += row(advice.plain, !advice.pays);
  for (const Prediction& p : advice.candidates) {
    text += row(p, advice.pays && p.policy == advice.advised.policy &&
                       p.tree_size == advice.advised.tree_size);
  }
  text +=
      "\nPredicted; times are those of a step, prefill is left out, accepted counts the bonus "
      "token.\n\n";
  if (advice.pays) {
    text += line("Advised, %.2f times the speed of plain decoding:\n  ", advice.advised.speedup);
  } else {
    text += line(
        "Speculation will not pay here: nothing promises %.2f times plain decoding.\n"
        "Advised:\n  ",
        least_speedup);
  }
  text += command + "\n";
  if (advice.checks.empty()) return text;
  text += line("\nThe prediction against a run on other texts:\n\n  %-8s %5s %20s %20s %9s\n",
               "policy", "size", "accepted, predicted", "tokens/s, predicted", "ratio");
  for (const CheckedPrediction& c : advice.checks) {
    const bool plain = c.policy == Policy::none;
    const std::string name = plain ? "plain" : name_of(c.policy);
    const std::string size = plain ? "" : name_of_size(c.tree_size);
    if (!plain && c.tree_size == 0) {
      text += line("  %-8s %5s %9.2f %10s %9.1f %10s %9s\n", name.c_str(), size.c_str(),
                   c.measured_length, "", c.measured, "", "");
    } else {
      text += line("  %-8s %5s %9.2f %10.2f %9.1f %10.1f %9.2f\n", name.c_str(), size.c_str(),
                   c.measured_length, c.predicted_length, c.measured, c.predicted,
                   c.predicted > 0.0 ? c.measured / c.predicted : 0.0);
    }
  }
  if (automatic_is_faster(advice)) {
    text +=
        "\nAutomatic sizes, the default, were faster there than the fixed one advised: leave "
        "--policy\nand --tree-size out.\n";
  }
  return text;
}

std::string to_json(const Advice& advice, const std::string& command) {
  Json candidates = Json::array(), checks = Json::array();
  for (const Prediction& p : advice.candidates) candidates.push_back(json_of(p));
  for (const CheckedPrediction& c : advice.checks) {
    const bool predicted = c.predicted > 0.0;
    checks.push_back(
        {{"policy", name_of(c.policy)},
         {"tree_size",
          c.policy != Policy::none && c.tree_size == 0 ? Json("auto") : Json(c.tree_size)},
         {"predicted_tokens_per_second", predicted ? Json(c.predicted) : Json()},
         {"tokens_per_second", c.measured},
         {"ratio", predicted ? Json(c.measured / c.predicted) : Json()},
         {"predicted_accepted_length", predicted ? Json(c.predicted_length) : Json()},
         {"accepted_length", c.measured_length}});
  }
  const Calibration& clock = advice.calibration;
  return Json{{"pays", advice.pays},
              {"command", command},
              {"advised", json_of(advice.advised)},
              {"plain", json_of(advice.plain)},
              {"candidates", std::move(candidates)},
              {"checks", std::move(checks)},
              {"rank_acceptance", advice.rank_acceptance},
              {"prefix", advice.prefix},
              {"seconds",
               {{"target_row", advice.target_seconds},
                {"target_17_rows", advice.target_wide_seconds},
                {"draft_row", advice.draft_seconds}}},
              {"clock",
               {{"plain_ratio", clock.plain.at(1)},
                {"verify_17_ratio", clock.verify.at(17)},
                {"draft_ratio", clock.draft.at(1)},
                {"step_seconds", clock.step_seconds},
                {"node_seconds", clock.node_seconds}}},
              {"temperature", advice.temperature},
              {"acceptance", name_of(advice.acceptance)},
              {"device", advice.device},
              {"dtype", advice.dtype},
              {"version", version()}}
             .dump() +
         "\n";
}

}  // namespace coppice::study
