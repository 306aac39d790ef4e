#include <nlohmann/json.hpp>

#include "base/error.h"
#include "study/advise/advise.h"
#include "study/number_text.h"

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

Json size_json(const Prediction& p) {
  return p.policy != Policy::none && p.tree_size == 0 ? Json("auto") : Json(p.tree_size);
}

Json json_of(const Prediction& p) {
  return {{"policy", name_of(p.policy)},
          {"tree_size", size_json(p)},
          {"tree_depth", p.tree_depth > 0 ? Json(p.tree_depth) : Json()},
          {"accepted_length", p.accepted_length},
          {"tree_size_mean", p.nodes},
          {"seconds",
           {{"draft", p.draft_seconds}, {"verify", p.verify_seconds}, {"other", p.other_seconds}}},
          {"tokens_per_second", p.tokens_per_second},
          {"speedup", p.speedup}};
}

bool is_advised(const Advice& advice, Policy policy, std::int32_t size) {
  return policy == advice.advised.policy && size == advice.advised.tree_size;
}

// What the check made of it, if it was checked.
const CheckedPrediction* checked(const Advice& advice, Policy policy, std::int32_t size) {
  if (!advice.check) return nullptr;
  for (const CheckedPrediction& one : advice.check->settings) {
    if (one.foretold.policy == policy && one.foretold.tree_size == size) return &one;
  }
  return nullptr;
}

std::string rounds_text(std::int32_t rounds) {
  return cat(rounds, rounds == 1 ? " round" : " rounds");
}

std::string verdict_text(const Advice& advice) {
  if (!advice.check) {
    if (advice.pays) {
      return line(
          "Advised, as predicted and not confirmed by a run: %.2f times plain decoding's speed:\n",
          advice.advised.speedup);
    }
    return line(
        "Speculation is not expected to pay here (not confirmed by a run): nothing promises %.2f\n"
        "times plain decoding. Advised:\n",
        least_speedup);
  }
  const Check& check = *advice.check;
  if (!advice.pays) {
    return check.undecided
               ? line(
                     "No speculation was faster than plain decoding in each of %s, though "
                     "some was in\nmost; on a quieter machine, or with more --rounds, it may be. "
                     "Advised until then:\n",
                     rounds_text(check.rounds).c_str())
               : line(
                     "Speculation will not pay here: in %s nothing made %.2f times plain "
                     "decoding. Advised:\n",
                     rounds_text(check.rounds).c_str(), least_speedup);
  }
  const CheckedPrediction& best = check.settings[*check.best];
  return line("Advised: %.2f times the speed of plain decoding, as run (%.2f to %.2f in %s%s):\n",
              best.speedup, best.lowest, best.highest, rounds_text(check.rounds).c_str(),
              best.is_predicted() ? line("; %.2f foretold", advice.advised.speedup).c_str() : "");
}

std::string check_text(const Advice& advice) {
  const Check& check = *advice.check;
  std::string text = line(
      "Run alternately with plain decoding, on other texts, %s; speed-up: median, least\n"
      "and greatest round\n\n  %-8s %5s %20s %20s %21s\n",
      rounds_text(check.rounds).c_str(), "policy", "size", "accepted, predicted",
      "tokens/s, predicted", "speed-up");
  for (const CheckedPrediction& c : check.settings) {
    const Prediction& p = c.foretold;
    const bool plain = p.policy == Policy::none;
    const auto predicted = [&](const char* format, double value) {
      return c.is_predicted() ? line(format, value) : std::string();
    };
    text +=
        line("  %-8s %5s %9.2f %10s %9.1f %10s %6.2f [%5.2f, %5.2f]%s\n",
             plain ? "plain" : name_of(p.policy), plain ? "" : name_of_size(p.tree_size).c_str(),
             c.measured_length, predicted("%.2f", p.accepted_length).c_str(), c.measured,
             predicted("%.1f", p.tokens_per_second).c_str(), c.speedup, c.lowest, c.highest,
             is_advised(advice, p.policy, p.tree_size) ? "  <" : "");
  }
  if (check.noisy()) {
    text += line(
        "\nThis machine is noisy: plain decoding alone made %.1f tokens/s in one round and %.1f "
        "in\n"
        "another. Run it again when nothing else runs, or with more --rounds.\n",
        check.plain_slowest, check.plain_fastest);
  }
  return text;
}

}  // namespace

std::string policy_options(const Advice& advice) {
  const Prediction& advised = advice.advised;
  if (advised.policy == Policy::none) return "--policy none";
  std::string words = cat("--policy ", name_of(advised.policy));
  if (advised.tree_size > 0) words += cat(" --tree-size ", advised.tree_size);
  if (advised.policy == Policy::sequoia) {
    words += cat(" --tree-depth ", advised.tree_depth, " --acceptance-vector ");
    for (std::size_t rank = 0; rank < advice.acceptance_vector.size(); ++rank) {
      words += cat(rank == 0 ? "" : ",", number_text(advice.acceptance_vector[rank]));
    }
  }
  return words;
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
    text += row(p, is_advised(advice, p.policy, p.tree_size));
  }
  text +=
      "\nPredicted; times are those of a step, prefill is left out, accepted counts the bonus "
      "token.\nThe line with < is advised.\n\n";
  if (advice.check) text += check_text(advice) + "\n";
  return text + verdict_text(advice) + "  " + printable(command) + "\n";
}

std::string to_json(const Advice& advice, const std::string& command) {
  Json candidates = Json::array(), checks = Json::array();
  for (const Prediction& p : advice.candidates) candidates.push_back(json_of(p));
  if (advice.check) {
    for (const CheckedPrediction& c : advice.check->settings) {
      const auto predicted = [&](double value) { return c.is_predicted() ? Json(value) : Json(); };
      checks.push_back({{"policy", name_of(c.foretold.policy)},
                        {"tree_size", size_json(c.foretold)},
                        {"predicted_tokens_per_second", predicted(c.foretold.tokens_per_second)},
                        {"tokens_per_second", c.measured},
                        {"predicted_accepted_length", predicted(c.foretold.accepted_length)},
                        {"accepted_length", c.measured_length},
                        {"speedup", c.speedup},
                        {"speedup_lowest", c.lowest},
                        {"speedup_highest", c.highest}});
    }
  }
  Json advised = json_of(advice.advised);
  const CheckedPrediction* run = checked(advice, advice.advised.policy, advice.advised.tree_size);
  advised["measured_speedup"] = run != nullptr ? Json(run->speedup) : Json();
  const ClockCalibration& clock = advice.calibration;
  return Json{{"pays", advice.pays},
              {"command", command},
              {"confirmed", advice.check.has_value()},
              {"undecided", advice.check && advice.check->undecided},
              {"noisy", advice.check && advice.check->noisy()},
              {"rounds", advice.check ? advice.check->rounds : 0},
              {"advised", std::move(advised)},
              {"plain", json_of(advice.plain)},
              {"candidates", std::move(candidates)},
              {"checks", std::move(checks)},
              {"acceptance_vector", advice.acceptance_vector},
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
             .dump(-1, ' ', false, Json::error_handler_t::replace) +
         "\n";
}

}  // namespace coppice::study
