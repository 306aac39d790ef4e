#include <array>
#include <atomic>
#include <future>
#include <mutex>
#include <numeric>

#include "base/error.h"
#include "engine/check_speculation.h"
#include "study/figures/text.h"
#include "study/replay/replay.h"

namespace coppice::study {
namespace {

/// What is summed over the steps of a text.
enum StepColumn : std::size_t {
  steps,
  tokens,  ///< judged good, bonus included
  drafts,  ///< of these, draft tokens
  drafted,
  passes,
  unrecorded,   ///< its tree wants nodes that are not on record
  ended_short,  ///< the accepted path ended at one that lacks such nodes
  step_columns
};

using TextSums = std::array<double, step_columns>;

void add(const ReplayedStep& step, TextSums& sums) {
  const auto length = static_cast<double>(step.accepted_length);
  const TextSums one = {1.0,
                        length,
                        length - 1.0,
                        static_cast<double>(step.tree_size),
                        static_cast<double>(step.draft_passes),
                        step.complete ? 0.0 : 1.0,
                        step.ended_short ? 1.0 : 0.0};
  for (std::size_t c = 0; c < step_columns; ++c) sums[c] += one[c];
}

/// Replays every text with seeds 0 to `seeds` - 1. Texts before which `stop` said so are not in the
/// sums. These are of whole numbers, and so the same for any number of threads.
std::array<Values, step_columns> sum_steps(const Replayer& replayer, const Recording& recording,
                                           std::int32_t seeds, const std::function<bool()>& stop,
                                           int threads) {
  std::vector<std::optional<TextSums>> sums(recording.texts.size());
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;  // of stop
  const auto stopped = [&] {
    const std::lock_guard lock(mutex);
    return stop && stop();
  };
  const auto work = [&] {
    Replayer own(replayer);
    for (std::size_t text = next++; text < sums.size() && !stopped(); text = next++) {
      TextSums of_text{};
      own.replay(recording.texts[text], 0, seeds,
                 [&](std::uint64_t, const ReplayedStep& step) { add(step, of_text); });
      sums[text] = of_text;
    }
  };
  std::vector<std::future<void>> others;
  for (int t = 1; t < threads; ++t) others.push_back(std::async(std::launch::async, work));
  work();
  for (std::future<void>& other : others) other.get();
  std::array<Values, step_columns> columns;
  for (const auto& text : sums) {
    for (std::size_t c = 0; text && c < step_columns; ++c) columns[c].push_back((*text)[c]);
  }
  return columns;
}

std::string size_text(const ReplayRow& row) {
  return row.requested_size > 0 ? std::to_string(row.requested_size) : "fixed";
}

}  // namespace

ReplayRow replay_all(const Recording& recording, const GenerateOptions& options, std::int32_t seeds,
                     const std::function<bool()>& stop, int threads) {
  const Replayer replayer(recording, options);
  const GenerateOptions& settled = replayer.options();
  const bool greedy = settled.sampling.temperature == 0.0;
  const bool sampled = !greedy && settled.acceptance == Acceptance::rejection;
  ReplayRow row;
  row.policy = name_of(settled.speculation);
  row.acceptance = greedy ? "greedy" : name_of(settled.acceptance);
  row.requested_size = asked_size(settled.speculation);
  row.temperature = settled.sampling.temperature;
  row.fixed_shape = replayer.has_fixed_shape();
  const auto columns = sum_steps(replayer, recording, sampled ? seeds : 1, stop, threads);
  const auto total = [&](StepColumn c) {
    return std::accumulate(columns[c].begin(), columns[c].end(), 0.0);
  };
  const auto per_step = [&](StepColumn c) { return total(c) / total(steps); };
  row.steps = static_cast<std::int64_t>(total(steps));
  row.accepted_length = bootstrap(columns[tokens], columns[steps]);
  row.accepted_share = bootstrap(columns[drafts], columns[drafted]);
  row.draft_passes = per_step(passes);
  row.tree_size = per_step(drafted);
  row.unrecorded_share = per_step(unrecorded);
  row.short_share = per_step(ended_short);
  return row;
}

Table replay_table(const std::vector<ReplayRow>& rows) {
  Table table{{{"policy", Align::left}, {"size", Align::left}, {"acceptance", Align::left}}, {}};
  add_columns(table, {"accepted length [95%]", "per draft token", "passes", "tree", "unrecorded %",
                      "ended short %", "steps"});
  const auto share = [](double part) { return percent(part, 1.0); };
  for (const ReplayRow& row : rows) {
    const std::string about = !row.fixed_shape && row.unrecorded_share > 0.0 ? "~" : "";
    table.rows.push_back({row.policy, size_text(row), row.acceptance,
                          with_interval(row.accepted_length, 3), fixed(row.accepted_share.value, 3),
                          about + fixed(row.draft_passes, 2), about + fixed(row.tree_size, 1),
                          share(row.unrecorded_share), share(row.short_share), cat(row.steps)});
  }
  return table;
}

Table replay_csv(const std::vector<ReplayRow>& rows) {
  Table table;
  add_columns(table,
              {"policy", "tree_size", "acceptance", "temperature", "steps", "accepted_length",
               "accepted_length_low", "accepted_length_high", "accepted_share", "draft_passes",
               "tree_size_mean", "unrecorded_share", "short_share"});
  for (const ReplayRow& row : rows) {
    auto& cells = table.rows.emplace_back(std::vector<std::string>{
        row.policy, size_text(row), row.acceptance, number_text(row.temperature), cat(row.steps)});
    for (const double figure :
         {row.accepted_length.value, row.accepted_length.low, row.accepted_length.high,
          row.accepted_share.value, row.draft_passes, row.tree_size, row.unrecorded_share,
          row.short_share}) {
      cells.push_back(exact(figure));
    }
  }
  return table;
}

}  // namespace coppice::study
