// What a forward pass costs on this device, by rows and by prefix.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "models/model.h"
#include "sizing/step_work.h"

namespace coppice {

/// Seconds of one model's pass at two prefix lengths; between and beyond them linear.
class PassCosts {
 public:
  struct Point {
    std::int32_t rows;
    double seconds_short;
    double seconds_long;
  };
  PassCosts() = default;
  /// Points by rising rows. More rows never cost less, and a longer prefix never less, nor less the
  /// more rows there are: a dip is noise, and is taken out.
  PassCosts(std::int32_t prefix_short, std::int32_t prefix_long, std::vector<Point> points);

  double seconds(std::int32_t rows, std::int32_t prefix) const { return at(rows, prefix); }
  /// Returns the seconds of a pass whose rows belong to `texts` texts of `kv_tokens` tokens
  /// together, alike in rows and length. Products see all rows, attention a text's own rows and KV:
  /// what grows with the prefix is each text's growth for its share of the rows, summed. For one
  /// text as above.
  double seconds(double rows, std::int32_t texts, std::int64_t kv_tokens) const;

  std::int32_t prefix_short() const { return prefix_short_; }
  std::int32_t prefix_long() const { return prefix_long_; }
  const std::vector<Point>& points() const { return points_; }

 private:
  double at(double rows, double prefix) const;

  std::int32_t prefix_short_ = 0, prefix_long_ = 1;
  std::vector<Point> points_;
};

struct CostTable {
  std::string fingerprint;  ///< device, types, threads and both models' shapes
  PassCosts target;
  PassCosts draft;  ///< of a step's passes but the first
  /// A step's first pass: over what the draft has not seen of the text, with cold caches.
  PassCosts first_draft = {};
  /// Starts since this table was last confirmed: cost_cache.h.
  std::int32_t doubts = 0;
  /// Measured while texts held much of the pools: up to the rows for which there was room. No step
  /// is to have more, and it is kept nowhere.
  bool cut = false;

  /// `draft`'s two rows in a table without first passes.
  double first_draft_seconds(std::int32_t prefix) const {
    const PassCosts& first = first_draft.points().empty() ? draft : first_draft;
    return first.seconds(2, prefix);
  }

  /// Return the seconds of parts of a joint step: its target's pass; its first draft pass, which
  /// costs what a later one does and what cold caches add; each of its other draft passes; and what
  /// stands beside all passes.
  double target_seconds(const StepWork& work) const;
  double first_draft_seconds(const StepWork& work) const;
  double later_draft_seconds(const StepWork& work) const;
  static double host_seconds(const StepWork& work);
};

/// Device, types, threads and shapes: what a table was measured for.
std::string cost_fingerprint(const Model& target, const Model& draft);

/// nullopt where there is no such file. Throws Error(failure) for one that cannot be read or
/// was measured for other models or another device than `fingerprint` says (nullopt: any will do).
std::optional<CostTable> read_cost_table(const std::filesystem::path& file,
                                         const std::optional<std::string>& fingerprint);
/// Writes beside the file and renames, so that a full disk leaves no half table.
void write_cost_table(const std::filesystem::path& file, const CostTable& table);
/// What it writes.
std::string text_of(const CostTable& table);

}  // namespace coppice
