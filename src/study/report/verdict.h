// Which setting is fastest, in a line.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "study/figures/table.h"
#include "study/statistics.h"

namespace coppice::study {

struct Summary;
struct SummaryRow;

/// The fastest tree of a temperature and acceptance rule against what needs no tree. Places are
/// those of the study's rows.
struct Verdict {
  std::size_t leader = 0;  ///< fastest of the policies that grow trees; if none, of the chains
  std::size_t baseline =
      0;  ///< fastest of plain decoding and chains; if none grows, plain decoding
  /// The leader's speed-up over the baseline's (Comparison::speed). Holm's family: each leader
  /// against all other rows of its temperature and rule.
  Tested speed;
  /// Trees and chains, without the baseline, that the leader is not told apart from.
  std::vector<std::size_t> alike;

  /// Whether leader and baseline are told apart at 5%, corrected.
  bool is_separable() const;
};

/// Returns one for each temperature and rule under which something speculates, in the rows' order.
/// `columns`: what each row brought.
std::vector<Verdict> verdicts_of(const std::vector<SummaryRow>& rows,
                                 const std::vector<PromptColumns>& columns);

/// Says it in a sentence: "Temperature 0.6, rejection: dyspec 16 is fastest, 1.31 [1.22, 1.40]
/// times chain 4 (24 prompts)."
std::string verdict_sentence(const Summary& summary, const Verdict& verdict);

/// A row for each verdict.
Table verdict_table(const Summary& summary);

}  // namespace coppice::study
