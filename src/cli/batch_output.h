// Where `generate --batch` leaves its lines: in order, and so that a later run can go on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "study/files/appended_file.h"

namespace coppice::cli {

/// What tells that a line of output belongs to a line of input: whatever changes its text.
struct StoredText {
  std::string request;
  bool failed = false;
};

class BatchOutput {
 public:
  /// Standard output if `file` is empty. Else opens or creates the file, keeps other processes out
  /// and reads what a run that was ended early left; a torn last line is cut off. Throws
  /// Error(failure), with the file as it was: another process writes it, or it holds what no batch
  /// wrote.
  explicit BatchOutput(const std::string& file);

  const std::vector<StoredText>& stored() const { return stored_; }
  /// The common seed of the texts that are there.
  std::optional<std::uint64_t> seed() const { return seed_; }

  /// Checks that what is there answers the first of `requests`. Throws Error(usage).
  void require(const std::vector<std::string>& requests) const;

  /// Takes the line of text `index` and writes it as soon as all lines before it are written.
  /// Throws Error(failure), with the lines before as they were, for a full disk and the like;
  /// ClosedPipe.
  void put(std::size_t index, std::string line);
  /// Lines that are written, those that were there included.
  std::size_t written() const { return next_; }
  /// Waits until all that is written is on the disk.
  void finish();

 private:
  void read(std::string_view line);

  std::optional<study::AppendedFile> file_;
  std::vector<StoredText> stored_;
  std::optional<std::uint64_t> seed_;
  std::map<std::size_t, std::string> waiting_;
  std::size_t next_ = 0;
};

}  // namespace coppice::cli
