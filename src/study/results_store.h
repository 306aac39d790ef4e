// results.jsonl: one line per result, on the disk before the next one is worked on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"

namespace coppice::study {

/// Appends lines to a file that may have been cut short by a kill. One process and one thread at a
/// time.
class ResultsStore {
 public:
  /// A line that stands in the file and its number there, from 1.
  struct Line {
    std::int64_t number;
    std::string text;
  };

  /// Opens or creates the file and reads it. A last line without its end, left by a run that was
  /// killed while it wrote, is cut off. Throws Error(failure) where the file cannot be used.
  explicit ResultsStore(const std::filesystem::path& file);

  /// What was there on opening.
  const std::vector<Line>& lines() const { return lines_; }
  const std::filesystem::path& file() const { return file_; }

  /// Appends a line and waits until it is on the disk. Throws Error(failure), with the lines before
  /// as they were, for a full disk and the like.
  void append(std::string_view line);

 private:
  std::filesystem::path file_;
  FileHandle handle_;
  std::vector<Line> lines_;
  std::uintmax_t size_ = 0;  ///< bytes of whole lines
};

}  // namespace coppice::study
