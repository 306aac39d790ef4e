// results.jsonl: one line per result, on the disk before the next one is worked on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"

namespace coppice::study {

/// A line that stands in the file and its number there, from 1.
struct StoredLine {
  std::int64_t number;
  std::string text;  ///< the object as it was appended, its checksum checked
};

/// The whole lines of a file of results. Every line is an object whose last member, "check", is the
/// FNV-1a of all before it: any single changed byte is found. A last line without its end, left by
/// a run that was killed while it wrote, is no error: `whole_bytes` is where it begins. Throws
/// Error(failure) that names the first line that was changed, and for a file that cannot be read.
std::vector<StoredLine> read_results(const std::filesystem::path& file,
                                     std::uintmax_t* whole_bytes = nullptr);

/// The line that read_results() takes for `object`, a JSON object's text; without its end.
std::string with_checksum(std::string_view object);

/// Appends lines to a file that may have been cut short by a kill. One process and one thread at a
/// time.
class ResultsStore {
 public:
  /// Opens or creates the file and reads it. A torn last line is cut off. Throws as read_results()
  /// does, with the file as it was.
  explicit ResultsStore(const std::filesystem::path& file);

  /// What was there on opening.
  const std::vector<StoredLine>& lines() const { return lines_; }
  const std::filesystem::path& file() const { return file_; }

  /// Appends an object's text as a line and waits until it is on the disk. Throws Error(failure),
  /// with the lines before as they were, for a full disk and the like.
  void append(std::string_view object);

 private:
  std::filesystem::path file_;
  FileHandle handle_;
  std::vector<StoredLine> lines_;
  std::uintmax_t size_ = 0;  ///< bytes of whole lines
};

}  // namespace coppice::study
