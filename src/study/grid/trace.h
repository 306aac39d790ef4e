// Every node of every judged tree, for other programs: a line of JSON for each text, with the
// format's version as "trace", the cell, the prompt and the run as results name them, and the nodes
// by column (README.md says how it is read).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "base/appended_file.h"
#include "engine/step_view.h"
#include "study/files/member_list.h"

namespace coppice::study {

enum class Fate : std::uint8_t {
  root = 0,
  accepted = 1,
  rejected = 2,  ///< its parent was reached, and no sibling drawn before it was accepted
  /// The parent was not reached, or a sibling drawn before it was accepted, or the text had ended:
  /// the judge may have gone on behind an end token, which counts nowhere.
  not_reached = 3,
};

/// Columns of equal length, a row for each node of each step.
struct TraceNodes {
  std::vector<std::int32_t> step;    ///< of the text, from 0
  std::vector<std::int32_t> node;    ///< of the step's tree; parents and earlier siblings first
  std::vector<TokenId> token;        ///< of node 0 the last token of the text so far
  std::vector<std::int32_t> parent;  ///< node, -1 for the root
  std::vector<std::int32_t> depth;   ///< edges from the root
  std::vector<std::int32_t> rank;    ///< among siblings, in the order drawn, from 0
  std::vector<float> draft_prob;     ///< D(token | path), processed; 1 where nothing was drawn
  std::vector<float> value;          ///< of its position (TokenTree::value)
  std::vector<float> target_prob;    ///< T(token | path), processed: at temperature 0 it is 0 or 1
  std::vector<Fate> fate;            ///< by number
  std::vector<Origin> origin;        ///< by number: 0 the draft (and the root), 1 lookup

  COPPICE_MEMBERS(step, node, token, parent, depth, rank, draft_prob, value, target_prob, fate,
                  origin)
};

/// The nodes of one text, gathered step by step.
struct TracedText {
  std::string cell, prompt, run;  ///< as in Result
  TraceNodes nodes;

  COPPICE_MEMBERS(cell, prompt, run, nodes)

  /// A step, as an engine's observer sees it. On a GPU a row of logits is downloaded for every node
  /// that has children.
  void add(const StepView& step);
};

/// Cell, prompt and run of texts in a trace.
using TracedNames = std::set<std::tuple<std::string, std::string, std::string>>;

/// Appends to a trace file, which it holds for itself.
class TraceWriter {
 public:
  /// Creates the file, or goes on with one that is there, less a last line that was cut off.
  /// `check` gets the names of what is there before anything is changed, and may throw. Throws
  /// Error(usage) if that is no trace, or another process writes it, Error(failure) if it cannot be
  /// written.
  explicit TraceWriter(const std::filesystem::path& path,
                       const std::function<void(const TracedNames&)>& check = {});

  /// To the disk, whole. Throws Error(failure); the file then ends where it did before.
  void append(const TracedText& text);

 private:
  std::optional<AppendedFile> file_;
};

}  // namespace coppice::study
