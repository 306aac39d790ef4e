#include <algorithm>
#include <array>
#include <atomic>
#include <future>
#include <mutex>
#include <numeric>

#include "base/error.h"
#include "engine/check_speculation.h"
#include "study/figures/text.h"
#include "study/grid/grid.h"
#include "study/replay/own_acceptance.h"
#include "study/replay/replay.h"

namespace coppice::study {
namespace {

/// What is summed over the steps of a text.
enum StepColumn : std::size_t {
  steps,
  tokens,  ///< kept, bonus included
  drafts,  ///< of these, draft tokens
  drafted,
  looked_up,
  looked_up_accepted,
  passes,
  unrecorded,  ///< its tree wants nodes that are not on record
  lacks_nodes,
  lacks_entries,
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
                        static_cast<double>(step.looked_up),
                        static_cast<double>(step.looked_up_accepted),
                        static_cast<double>(step.draft_passes),
                        step.complete ? 0.0 : 1.0,
                        step.lacks_nodes ? 1.0 : 0.0,
                        step.lacks_entries ? 1.0 : 0.0,
                        step.ended_short ? 1.0 : 0.0};
  for (std::size_t c = 0; c < step_columns; ++c) sums[c] += one[c];
}

/// What steps come to, by text, and what tells their trees from another row's.
struct Sums {
  std::array<Values, step_columns> columns;
  std::uint64_t trees_print = 0;
};

/// Replays every text with seeds 0 to `seeds` - 1, each by the replayer of its place. Texts before
/// which `stop` said so are not in the sums. These are of whole numbers, and so the same for any
/// number of threads.
Sums sum_steps(const std::vector<Replayer>& replayers, const PlannedSettings& planned,
               const Recording& recording, std::int32_t seeds, const std::function<bool()>& stop,
               int threads) {
  std::vector<std::optional<TextSums>> sums(recording.texts.size());
  std::vector<std::uint64_t> prints(sums.size(), 0);
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;  // of stop
  const auto stopped = [&] {
    const std::lock_guard lock(mutex);
    return stop && stop();
  };
  const auto work = [&] {
    std::vector<Replayer> all(replayers);
    for (std::size_t text = next++; text < sums.size() && !stopped(); text = next++) {
      TextSums of_text{};
      Replayer& own = all[planned.place_of(text)];
      own.replay(recording.texts[text], 0, seeds,
                 [&](std::uint64_t, const ReplayedStep& step) { add(step, of_text); });
      sums[text] = of_text;
      prints[text] = own.trees_print();
    }
  };
  std::vector<std::future<void>> others;
  for (int t = 1; t < threads; ++t) others.push_back(std::async(std::launch::async, work));
  work();
  for (std::future<void>& other : others) other.get();
  Sums all;
  for (const auto& text : sums) {
    for (std::size_t c = 0; text && c < step_columns; ++c) all.columns[c].push_back((*text)[c]);
  }
  constexpr std::uint64_t odd = 0x9e3779b97f4a7c15u;  // texts count by their places
  for (const std::uint64_t print : prints) all.trees_print = odd * all.trees_print + print;
  return all;
}

std::string size_text(const ReplayRow& row) {
  return row.requested_size > 0 ? std::to_string(row.requested_size) : "fixed";
}

/// As studies name it. What a run learns does not replay: these policies grow by plain values.
std::string name_in_studies(const GenerateOptions& options) {
  PolicyOptions named = policy_named(name_of(options.speculation));
  named.plain_values = takes(named.policy, PolicyOption::plain_values);
  named.looks_up = options.lookup != Lookup::none;
  named.drafts = options.use_draft;
  return policy_name(named);
}

bool have_same_trees(const ReplayRow& a, const ReplayRow& b) {
  return a.steps > 0 && b.steps > 0 && a.acceptance == b.acceptance &&
         a.trees_print == b.trees_print;
}

}  // namespace

ReplayRow replay_all(const Recording& recording, const GenerateOptions& options, std::int32_t seeds,
                     const std::function<bool()>& stop, int threads) {
  const PlannedSettings planned = planned_settings(recording, options, seeds, stop);
  std::vector<Replayer> replayers;
  replayers.reserve(planned.settings.size());
  for (const GenerateOptions& setting : planned.settings) {
    replayers.emplace_back(recording, setting);
  }
  const GenerateOptions& settled = replayers.front().options();
  const bool greedy = settled.sampling.temperature == 0.0;
  const bool sampled = !greedy && settled.acceptance == Acceptance::rejection;
  ReplayRow row;
  row.policy = name_in_studies(settled);
  row.planned_for = planned.planned_for;
  row.acceptance = greedy ? "greedy" : name_of(settled.acceptance);
  row.requested_size = asked_size(settled.speculation);
  row.temperature = settled.sampling.temperature;
  row.fixed_shape = replayers.front().has_fixed_shape();
  const auto [columns, print] =
      sum_steps(replayers, planned, recording, sampled ? seeds : 1, stop, threads);
  row.trees_print = print;
  const auto total = [&sums = columns](StepColumn c) {
    return std::accumulate(sums[c].begin(), sums[c].end(), 0.0);
  };
  const auto per_step = [&](StepColumn c) { return total(c) / total(steps); };
  row.steps = static_cast<std::int64_t>(total(steps));
  row.accepted_length = bootstrap(columns[tokens], columns[steps]);
  row.accepted_share = bootstrap(columns[drafts], columns[drafted]);
  row.draft_passes = per_step(passes);
  row.tree_size = per_step(drafted);
  row.looked_up = per_step(looked_up);
  row.looked_up_accepted = per_step(looked_up_accepted);
  row.unrecorded_share = per_step(unrecorded);
  row.lacks_nodes_share = per_step(lacks_nodes);
  row.lacks_entries_share = per_step(lacks_entries);
  row.short_share = per_step(ended_short);
  return row;
}

std::vector<std::string> identical_rows(const std::vector<ReplayRow>& rows) {
  std::vector<std::string> lines;
  std::vector<char> named(rows.size(), 0);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::string others;
    for (std::size_t j = i + 1; j < rows.size() && named[i] == 0; ++j) {
      if (named[j] != 0 || !have_same_trees(rows[i], rows[j])) continue;
      named[j] = 1;
      others += cat(", ", rows[j].policy, " ", size_text(rows[j]));
    }
    if (others.empty()) continue;
    lines.push_back(cat("identical trees: ", rows[i].policy, " ", size_text(rows[i]), others, " (",
                        rows[i].acceptance, ")"));
  }
  return lines;
}

std::vector<std::string> replay_notes(const std::vector<ReplayRow>& rows,
                                      const RecordingHeader& header) {
  std::vector<std::string> notes = identical_rows(rows);
  const auto add = [&](std::string note) {
    if (std::ranges::find(notes, note) == notes.end()) notes.push_back(std::move(note));
  };
  double short_of_nodes = 0.0, short_of_entries = 0.0;
  for (const ReplayRow& row : rows) {
    short_of_nodes = std::max(short_of_nodes, row.lacks_nodes_share);
    short_of_entries = std::max(short_of_entries, row.lacks_entries_share);
    if (row.planned_for.empty()) continue;
    add(cat(row.policy, "'s trees (", row.acceptance, ") are planned for ", row.planned_for));
  }
  if (short_of_entries > 0.0) {
    add(cat("up to ", percent(short_of_entries, 1.0),
            "% of a row's steps asked for more children of a node than the ", header.top_k,
            " recorded; record with more --entries"));
  }
  if (short_of_nodes > 0.0) {
    add(cat("up to ", percent(short_of_nodes, 1.0),
            "% of a row's steps asked for nodes that are not among the ", header.nodes,
            " recorded at each position; record with more --nodes"));
  }
  return notes;
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
  add_columns(table, {"policy", "tree_size", "acceptance", "temperature", "steps",
                      "accepted_length", "accepted_length_low", "accepted_length_high",
                      "accepted_share", "draft_passes", "tree_size_mean", "looked_up",
                      "looked_up_accepted", "unrecorded_share", "lacks_nodes_share",
                      "lacks_entries_share", "short_share", "planned_for", "same_trees_as"});
  for (const ReplayRow& row : rows) {
    auto& cells = table.rows.emplace_back(std::vector<std::string>{
        row.policy, size_text(row), row.acceptance, number_text(row.temperature), cat(row.steps)});
    for (const double figure :
         {row.accepted_length.value, row.accepted_length.low, row.accepted_length.high,
          row.accepted_share.value, row.draft_passes, row.tree_size, row.looked_up,
          row.looked_up_accepted, row.unrecorded_share, row.lacks_nodes_share,
          row.lacks_entries_share, row.short_share}) {
      cells.push_back(exact(figure));
    }
    cells.push_back(row.planned_for);
    const auto before = std::ranges::find_if(
        rows, [&](const ReplayRow& other) { return have_same_trees(row, other); });
    const bool is_first = before == rows.end() || &*before == &row;
    cells.push_back(is_first ? "" : cat(before->policy, " ", size_text(*before)));
  }
  return table;
}

}  // namespace coppice::study
