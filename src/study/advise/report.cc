#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "study/advise/advise.h"
#include "study/number_text.h"

namespace coppice::study {
namespace {

using Json = nlohmann::ordered_json;

/// "chain" and "4", at the start of a line.
std::string name_text(const Candidate& one) {
  const std::string size = one.tree_size > 0 ? std::to_string(one.tree_size) : "auto";
  return line("  %-8s %5s", one.plain() ? "plain" : name_of(one.policy),
              one.plain() ? "" : size.c_str());
}

bool is_advised(const Advice& advice, const Candidate& one) {
  return one.policy == advice.advised.policy && one.tree_size == advice.advised.tree_size;
}

const char* mark(const Advice& advice, const Candidate& one) {
  return is_advised(advice, one) ? "  <\n" : "\n";
}

/// Seconds of a step: the draft's passes, the target's, the rest.
std::array<double, 3> step_seconds(const Trial& trial) {
  const double steps = std::max(1.0, trial.steps);
  const double other = trial.seconds - trial.draft_seconds - trial.verify_seconds;
  return {trial.draft_seconds / steps, trial.verify_seconds / steps, std::max(0.0, other) / steps};
}

std::string row(const Advice& advice, const Candidate& one) {
  const auto [draft, verify, other] = step_seconds(one.sampled);
  return name_text(one) +
         line(" %9.2f %9.1f %9.1f %9.1f %10.1f %9.2f", one.sampled.accepted_length(), 1e6 * draft,
              1e6 * verify, 1e6 * other, one.sampled.tokens_per_second(), one.sampled_speedup) +
         mark(advice, one);
}

Json json_of(const Candidate& one) {
  const Trial& made = one.figures();
  const auto [draft, verify, other] = step_seconds(made);
  const bool is_automatic = !one.plain() && one.tree_size == 0;
  return {{"policy", name_of(one.policy)},
          {"tree_size", is_automatic ? Json("auto") : Json(one.tree_size)},
          {"tree_depth", one.tree_depth > 0 ? Json(one.tree_depth) : Json()},
          {"accepted_length", made.accepted_length()},
          {"tree_size_mean", made.tree_size()},
          {"seconds", {{"draft", draft}, {"verify", verify}, {"other", other}}},
          {"tokens_per_second", made.tokens_per_second()},
          {"speedup", one.is_sampled() ? one.sampled_speedup : one.speedup}};
}

std::string rounds_text(std::int32_t rounds) {
  return cat(rounds, rounds == 1 ? " round" : " rounds");
}

std::string verdict_text(const Advice& advice) {
  if (!advice.check) {
    if (advice.pays) {
      return line("Advised, by short runs and not confirmed: %.2f times plain decoding's speed:\n",
                  advice.advised.sampled_speedup);
    }
    return line(
        "Speculation is not expected to pay here (not confirmed): in short runs nothing made\n"
        "%.2f times plain decoding. Advised:\n",
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
  const Candidate& best = advice.advised;
  return line("Advised: %.2f times the speed of plain decoding, as run (%.2f to %.2f in %s%s):\n",
              best.speedup, best.lowest, best.highest, rounds_text(check.rounds).c_str(),
              best.is_sampled() ? line("; %.2f in short runs", best.sampled_speedup).c_str() : "");
}

std::string check_text(const Advice& advice) {
  const Check& check = *advice.check;
  std::string text = line(
      "Run alternately with plain decoding, on other texts, %s; speed-up: median, least\n"
      "and greatest round\n\n  %-8s %5s %20s %20s %21s\n",
      rounds_text(check.rounds).c_str(), "policy", "size", "accepted, sampled", "tokens/s, sampled",
      "speed-up");
  for (const Candidate& one : check.settings) {
    const auto sampled = [&](const char* format, double value) {
      return one.is_sampled() ? line(format, value) : std::string();
    };
    text += name_text(one) +
            line(" %9.2f %10s %9.1f %10s %6.2f [%5.2f, %5.2f]", one.measured.accepted_length(),
                 sampled("%.2f", one.sampled.accepted_length()).c_str(),
                 one.measured.tokens_per_second(),
                 sampled("%.1f", one.sampled.tokens_per_second()).c_str(), one.speedup, one.lowest,
                 one.highest) +
            mark(advice, one);
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
  const Candidate& advised = advice.advised;
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
      "On %s, %s, at temperature %g, %s\n\n"
      "  target: %.0f us for one token, %.0f us for 17 at a time; draft: %.0f us for one\n\n",
      advice.device.c_str(), advice.dtype.c_str(), advice.temperature, name_of(advice.acceptance),
      1e6 * advice.target_seconds, 1e6 * advice.target_wide_seconds, 1e6 * advice.draft_seconds);
  text += line("  %-8s %5s %9s %9s %9s %9s %10s %9s\n", "policy", "size", "accepted", "draft us",
               "verify us", "other us", "tokens/s", "speed-up");
  text += row(advice, advice.plain);
  for (const Candidate& one : advice.candidates) text += row(advice, one);
  text +=
      "\nShort runs: after each prompt the slower half is left out. Times are those of a step,\n"
      "prefill is left out, accepted counts the bonus token. The line with < is advised.\n\n";
  if (advice.check) text += check_text(advice) + "\n";
  return text + verdict_text(advice) + "  " + printable(command) + "\n";
}

std::string to_json(const Advice& advice, const std::string& command) {
  Json candidates = Json::array(), checks = Json::array();
  for (const Candidate& one : advice.candidates) candidates.push_back(json_of(one));
  for (const Candidate& one : advice.check ? advice.check->settings : std::vector<Candidate>()) {
    Json json = json_of(one);
    checks.push_back({{"policy", json["policy"]},
                      {"tree_size", json["tree_size"]},
                      {"sampled", one.is_sampled() ? json : Json()},
                      {"tokens_per_second", one.measured.tokens_per_second()},
                      {"accepted_length", one.measured.accepted_length()},
                      {"speedup", one.speedup},
                      {"speedup_lowest", one.lowest},
                      {"speedup_highest", one.highest}});
  }
  Json advised = json_of(advice.advised);
  advised["measured_speedup"] = advice.check ? Json(advice.advised.speedup) : Json();
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
              {"seconds",
               {{"target_row", advice.target_seconds},
                {"target_17_rows", advice.target_wide_seconds},
                {"draft_row", advice.draft_seconds}}},
              {"temperature", advice.temperature},
              {"acceptance", name_of(advice.acceptance)},
              {"device", advice.device},
              {"dtype", advice.dtype},
              {"version", version()}}
             .dump(-1, ' ', false, Json::error_handler_t::replace) +
         "\n";
}

}  // namespace coppice::study
