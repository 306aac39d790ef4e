#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "study/advise/advise.h"
#include "study/figures/table.h"
#include "study/figures/text.h"

namespace coppice::study {
namespace {

using Json = nlohmann::ordered_json;

/// "chain" and "4".
std::vector<std::string> name_cells(const Candidate& one) {
  if (one.plain()) return {"plain", ""};
  return {one.name(), one.tree_size > 0 ? cat(one.tree_size) : "auto"};
}

std::string mark(const Advice& advice, const Candidate& one) {
  const Candidate& advised = advice.advised;
  return one.name() == advised.name() && one.tree_size == advised.tree_size ? "<" : "";
}

/// Seconds of a step: the draft's passes, the target's, the rest.
std::array<double, 3> step_seconds(const Trial& trial) {
  const double steps = std::max(1.0, trial.steps);
  const double other = trial.seconds - trial.draft_seconds - trial.verify_seconds;
  return {trial.draft_seconds / steps, trial.verify_seconds / steps, std::max(0.0, other) / steps};
}

std::string formats_text(const Advice& advice) {
  if (advice.formats.empty()) return "";
  Table table{{{"draft weights", Align::left}}, {}};
  add_columns(table, {"draft us", "accepted", "tokens/s", "plain", "speed-up", ""});
  std::string problems;
  for (std::size_t i = 0; i < advice.formats.size(); ++i) {
    const DraftFormat& one = advice.formats[i];
    if (!one.problem.empty()) {
      problems += cat(one.name, " could not be tried: ", printable(one.problem), "\n");
      continue;
    }
    table.rows.push_back(
        {one.name, fixed(1e6 * one.draft_seconds, 0), fixed(one.drafted.accepted_length(), 2),
         fixed(one.drafted.tokens_per_second(), 1), fixed(one.plain.tokens_per_second(), 1),
         fixed(one.speedup(), 2), i == advice.format ? "<" : ""});
  }
  return cat(to_text(table), problems,
             "\nTried in short runs with automatic sizes, plain decoding beside each: the draft's "
             "weights as they\nare stored and rounded, and the target's own in fewer bits "
             "(--draft self:q4_k). None changes what\ntexts are distributed as. < marks what is "
             "predicted to be fastest, and what all below is about.\n\n");
}

std::string sampled_text(const Advice& advice) {
  Table table{{{"policy", Align::left}}, {}};
  add_columns(table, {"size", "prompts", "accepted", "draft us", "verify us", "other us",
                      "tokens/s", "speed-up", ""});
  std::vector<Candidate> all = advice.candidates;
  all.insert(all.begin(), advice.plain);
  for (const Candidate& one : all) {
    std::vector<std::string>& row = table.rows.emplace_back(name_cells(one));
    row.insert(row.end(), {cat(one.prompts), fixed(one.sampled.accepted_length(), 2)});
    for (const double part : step_seconds(one.sampled)) row.push_back(fixed(1e6 * part, 1));
    row.insert(row.end(), {fixed(one.sampled.tokens_per_second(), 1), fixed(one.sampled_speedup, 2),
                           mark(advice, one)});
  }
  return cat(
      to_text(table),
      "\nTried in short runs: DySpec's trees and chains of these sizes, for sizes of 4 to ",
      std::min(advice.largest_tree, largest_advised_tree),
      "\nthe Sequoia tree for this pair of the depth that makes most of the costs above, and "
      "trees with looked-up\nchildren (--lookup text) beside the draft's (dyspec+lookup) and "
      "alone (lookup: --draft none). After each\nprompt the slower half is left out; \"prompts\" "
      "says on how many a line was tried. Times "
      "are those of a step,\nprefill left out; accepted counts the bonus token. < marks what is "
      "advised.\n\n");
}

std::string rounds_text(std::int32_t rounds) {
  return cat(rounds, rounds == 1 ? " round" : " rounds");
}

std::string check_text(const Advice& advice, const Check& check) {
  Table table{{{"policy", Align::left}}, {}};
  add_columns(table, {"size", "accepted", "sampled", "tokens/s", "sampled", "speed-up", "least",
                      "greatest", ""});
  for (const Candidate& one : check.settings) {
    const auto sampled = [&](double value, int digits) {
      return one.is_sampled() ? fixed(value, digits) : std::string();
    };
    std::vector<std::string>& row = table.rows.emplace_back(name_cells(one));
    row.insert(
        row.end(),
        {fixed(one.measured.accepted_length(), 2), sampled(one.sampled.accepted_length(), 2),
         fixed(one.measured.tokens_per_second(), 1), sampled(one.sampled.tokens_per_second(), 1),
         fixed(one.speedup, 2), fixed(one.lowest, 2), fixed(one.highest, 2), mark(advice, one)});
  }
  std::string text =
      cat("Run alternately with plain decoding, on other texts, ", rounds_text(check.rounds),
          ":\nthe fastest of two policies, and automatic sizes, with and without --lookup text. "
          "Speed-up: of the\nmedian, least and greatest round.\n\n",
          to_text(table));
  if (check.noisy()) {
    text += line(
        "\nThis machine is noisy: plain decoding alone made %.1f tokens/s in one round and %.1f "
        "in\nanother. Run it again when nothing else runs, or with more --rounds.\n",
        check.plain_slowest, check.plain_fastest);
  }
  return text + "\n";
}

std::string verdict_text(const Advice& advice) {
  const Candidate& best = advice.advised;
  if (!advice.check && advice.pays) {
    return line("Advised, by short runs and not confirmed: %.2f times plain decoding's speed:\n",
                best.sampled_speedup);
  }
  if (!advice.check) {
    return line(
        "Speculation is not expected to pay here (not confirmed): in short runs nothing made\n"
        "%.2f times plain decoding. Advised:\n",
        least_speedup);
  }
  const std::string rounds = rounds_text(advice.check->rounds);
  if (advice.pays) {
    return line(
        "Advised: %.2f times the speed of plain decoding, as run (%.2f to %.2f in %s%s):\n",
        best.speedup, best.lowest, best.highest, rounds.c_str(),
        best.is_sampled() ? line("; %.2f in short runs", best.sampled_speedup).c_str() : "");
  }
  if (advice.check->undecided) {
    return cat(
        "No speculation was faster than plain decoding in each of ", rounds,
        ", though some was in\nmost; on a quieter machine, or with more --rounds, it may be. "
        "Advised until then:\n");
  }
  return line(
      "Speculation will not pay here: in %s nothing made %.2f times plain decoding. "
      "Advised:\n",
      rounds.c_str(), least_speedup);
}

Json json_of(const DraftFormat& one) {
  Json json = {{"name", one.name},
               {"draft", one.pair.draft.string()},
               {"draft_weights", name_of(one.pair.draft_weights)}};
  if (!one.problem.empty()) {
    json["error"] = one.problem;
    return json;
  }
  json["draft_row_seconds"] = one.draft_seconds;
  json["accepted_length"] = one.drafted.accepted_length();
  json["tree_size_mean"] = one.drafted.tree_size();
  json["tokens_per_second"] = one.drafted.tokens_per_second();
  json["plain_tokens_per_second"] = one.plain.tokens_per_second();
  json["speedup"] = one.speedup();
  return json;
}

Json json_of(const Candidate& one) {
  const Trial& made = one.figures();
  const auto [draft, verify, other] = step_seconds(made);
  const bool is_automatic = !one.plain() && one.tree_size == 0;
  return {{"policy", one.name()},
          {"tree_size", is_automatic ? Json("auto") : Json(one.tree_size)},
          {"tree_depth", one.tree_depth > 0 ? Json(one.tree_depth) : Json()},
          {"prompts", one.prompts},
          {"accepted_length", made.accepted_length()},
          {"tree_size_mean", made.tree_size()},
          {"looked_up", made.looked_up},
          {"looked_up_accepted", made.looked_up_accepted},
          {"seconds", {{"draft", draft}, {"verify", verify}, {"other", other}}},
          {"tokens_per_second", made.tokens_per_second()},
          {"speedup", one.is_sampled() ? one.sampled_speedup : one.speedup}};
}

}  // namespace

std::string policy_options(const Advice& advice) {
  const Candidate& advised = advice.advised;
  std::string words = cat("--policy ", name_of(advised.policy));
  if (advised.tree_size > 0) words += cat(" --tree-size ", advised.tree_size);
  if (advised.looks_up) {
    words += " --lookup text";
  } else if (advised.tree_size == 0 && !advised.plain()) {
    words += " --lookup none";
  }
  if (!advised.drafts) words += " --draft none";
  if (advised.policy == Policy::sequoia) {
    words += cat(" --tree-depth ", advised.tree_depth, " --acceptance-vector ");
    for (std::size_t rank = 0; rank < advice.acceptance_vector.size(); ++rank) {
      words += cat(rank == 0 ? "" : ",", number_text(advice.acceptance_vector[rank]));
    }
  }
  return words;
}

std::string to_text(const Advice& advice, const std::string& command) {
  return line(
             "On %s, %s, at temperature %g, %s\n\n"
             "target: %.0f us for one token, %.0f us for 17 at a time; draft: %.0f us for one\n\n",
             advice.device.c_str(), advice.dtype.c_str(), advice.temperature,
             name_of(advice.acceptance), 1e6 * advice.target_seconds,
             1e6 * advice.target_wide_seconds, 1e6 * advice.draft_seconds) +
         formats_text(advice) + sampled_text(advice) +
         (advice.check ? check_text(advice, *advice.check) : "") + verdict_text(advice) + "  " +
         printable(command) + "\n";
}

std::string to_json(const Advice& advice, const std::string& command) {
  Json candidates = Json::array(), checks = Json::array(), formats = Json::array();
  for (const DraftFormat& one : advice.formats) formats.push_back(json_of(one));
  const Json format = advice.formats.empty() ? Json() : Json(advice.formats[advice.format].name);
  for (const Candidate& one : advice.candidates) candidates.push_back(json_of(one));
  const Check check = advice.check.value_or(Check());
  for (const Candidate& one : check.settings) {
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
              {"undecided", check.undecided},
              {"noisy", check.noisy()},
              {"rounds", check.rounds},
              {"advised", std::move(advised)},
              {"plain", json_of(advice.plain)},
              {"candidates", std::move(candidates)},
              {"checks", std::move(checks)},
              {"draft_formats", std::move(formats)},
              {"draft_format", format},
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
