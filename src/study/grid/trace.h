// Every node of every judged tree, in a file that three lines of Python read (README.md).
//
// The file is one line of JSON, then records of fixed size without padding, little-endian. The
// header holds "format" ("coppice-trace"), "format_version" (2), "dtype" (numpy's, column by
// column), and "runs" and "prompts": the names that those columns of the records count. Whole
// generations are appended at once and then synced, so a kill loses at most the last one; a record
// cut short at the end is no error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/step_view.h"
#include "study/files/appended_file.h"
#include "study/files/member_list.h"

namespace coppice::study {

enum class Fate : std::uint8_t {
  root = 0,
  accepted = 1,
  rejected = 2,     ///< its parent was reached, and no sibling drawn before it was accepted
  not_reached = 3,  ///< the parent was not reached, or a sibling drawn before it was accepted
};

/// A record. The columns have these members' names and order.
struct TraceNode {
  std::uint32_t run = 0;     ///< place in the header's "runs", from 0
  std::uint32_t prompt = 0;  ///< place in the header's "prompts", from 0
  std::uint32_t step = 0;    ///< of the generation, from 0
  std::uint16_t node = 0;    ///< of the step's tree, from 0; parents and earlier siblings first
  std::int32_t token = -1;   ///< of node 0 the last token of the text so far
  std::int16_t parent = -1;  ///< node, -1 for the root
  std::uint16_t depth = 0;   ///< edges from the root
  std::uint16_t rank = 0;    ///< among siblings, in the order drawn, from 0
  float draft_prob = 1.0f;   ///< D(token | path), processed; 1 for the root
  float value = 1.0f;        ///< of its position (DySpec, eq. 11)
  float target_prob = 1.0f;  ///< T(token | path), processed: at temperature 0 it is 0 or 1
  Fate fate = Fate::root;

  COPPICE_MEMBERS(run, prompt, step, node, token, parent, depth, rank, draft_prob, value,
                  target_prob, fate)
};

/// Bytes of a record in the file.
inline constexpr std::size_t trace_record_bytes = 37;

/// The nodes of one generation, gathered step by step.
class TraceRun {
 public:
  TraceRun(std::uint32_t run, std::uint32_t prompt) : run_(run), prompt_(prompt) {}
  /// A step, as an engine's observer sees it, and T(token | path) of every node of its tree,
  /// [nodes].
  void add(const StepView& step, std::span<const float> target_prob);
  std::string_view bytes() const { return bytes_; }

 private:
  std::uint32_t run_, prompt_, step_ = 0;
  std::string bytes_;
  std::vector<Fate> fate_;
};

/// Appends to a trace file, which it holds for itself. append() may be called from several threads.
class TraceWriter {
 public:
  /// Which generations of a file that is there already are to be kept, by names.
  using Keep = std::function<bool(const std::string& run, const std::string& prompt)>;

  /// Creates the file. One that is there is continued: what `keep` does not want is taken out, and
  /// a torn record; names that its header lacks are added to it. Throws Error(usage) if that file
  /// is no trace, or another process writes it, Error(failure) if it cannot be written.
  TraceWriter(const std::filesystem::path& path, const std::vector<std::string>& runs,
              const std::vector<std::string>& prompts, const Keep& keep);

  /// Numbers of names that the constructor was given.
  std::uint32_t run_of(const std::string& name) const { return runs_.at(name); }
  std::uint32_t prompt_of(const std::string& name) const { return prompts_.at(name); }

  /// A generation, whole. Throws Error(failure); the file then ends where it did before.
  void append(const TraceRun& run);

 private:
  using Numbers = std::map<std::string, std::uint32_t>;
  FileHandle hold() const;

  std::filesystem::path path_;
  Numbers runs_, prompts_;
  std::mutex mutex_;
  std::optional<AppendedFile> file_;
};

struct Trace {
  nlohmann::json header;
  std::vector<TraceNode> nodes;
  bool torn = false;  ///< the file ended within a record, which was left out
};

/// Throws Error(failure): no such file, no trace, another version, or columns that this one does
/// not know.
Trace read_trace(const std::filesystem::path& path);

}  // namespace coppice::study
