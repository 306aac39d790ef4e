#include "study/replay/own_acceptance.h"

#include <algorithm>

#include "base/error.h"
#include "study/acceptance/acceptance.h"
#include "study/figures/text.h"
#include "study/replay/replay.h"

namespace coppice::study {
namespace {

constexpr std::size_t most_parts = 5;

void add(RankCounts& sums, const RankCounts& more) {
  for (const auto counts : {&RankCounts::judged, &RankCounts::accepted}) {
    auto& all = sums.*counts;
    all.resize(std::max(all.size(), (more.*counts).size()), 0);
    for (std::size_t rank = 0; rank < (more.*counts).size(); ++rank) {
      all[rank] += (more.*counts)[rank];
    }
  }
}

/// By text. Trees as measure_acceptance() grows them, as wide as the recording is.
std::vector<RankCounts> ranks_by_text(const Recording& recording, GenerateOptions options,
                                      std::int32_t seeds, const std::function<bool()>& stop) {
  SpecInferWidths chains{{1, 1, 1, 1}};
  chains.widths.front() = std::min(usual_ranks, recording.header.top_k);
  options.speculation = std::move(chains);
  Replayer replayer(recording, options);
  std::vector<RankCounts> ranks(recording.texts.size());
  for (std::size_t t = 0; t < ranks.size() && !(stop && stop()); ++t) {
    replayer.replay(recording.texts[t], 0, static_cast<std::uint64_t>(seeds),
                    [&](std::uint64_t, const ReplayedStep&) {
                      ranks[t].add(replayer.tree(), replayer.verdict().path);
                    });
  }
  return ranks;
}

/// What to plan for; where nothing was judged, a vector that is nearly nothing.
std::vector<double> vector_of(const RankCounts& counts) {
  MeasuredAcceptance measured;
  measured.judged = counts.judged;
  measured.accepted = counts.accepted;
  if (measured.judged.empty()) measured.judged = measured.accepted = {0};
  measured.acceptance_vector = estimate_acceptance(measured.accepted, measured.judged);
  // No child of a later rank was ever taken: nothing is to be had there.
  while (measured.acceptance_vector.size() > 1 && measured.acceptance_vector.back() == 0.0) {
    measured.acceptance_vector.pop_back();
  }
  return vector_to_plan_for(measured);
}

std::string words_of_ranks(const std::vector<double>& vector) {
  std::string words;
  for (const double prob : vector) words += cat(words.empty() ? "" : " ", fixed(prob, 3));
  return words;
}

}  // namespace

PlannedSettings planned_settings(const Recording& recording, const GenerateOptions& options,
                                 std::int32_t seeds, const std::function<bool()>& stop) {
  PlannedSettings planned{{options}, {}};
  const auto* sequoia = std::get_if<Sequoia>(&options.speculation);
  if (sequoia == nullptr || !sequoia->acceptance.empty()) return planned;
  const std::vector<RankCounts> ranks = ranks_by_text(recording, options, seeds, stop);
  const std::size_t parts = std::clamp<std::size_t>(ranks.size(), 1, most_parts);
  planned.settings.assign(parts, options);
  RankCounts all;
  for (const RankCounts& one : ranks) add(all, one);
  for (std::size_t part = 0; part < parts; ++part) {
    RankCounts others;
    for (std::size_t t = 0; t < ranks.size(); ++t) {
      if (parts == 1 || planned.place_of(t) != part) add(others, ranks[t]);
    }
    std::get<Sequoia>(planned.settings[part].speculation).acceptance = vector_of(others);
  }
  planned.planned_for =
      cat("this recording's own acceptance by rank (in all ", words_of_ranks(vector_of(all)), "), ",
          parts == 1 ? cat("on the text that is replayed, for it holds no other")
                     : cat("the texts parted in ", parts, ", each part's from the other parts"));
  return planned;
}

}  // namespace coppice::study
