// Files that lines are added to, whole or not at all.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

#include "base/files.h"

namespace coppice {

/// Opens `path`, creating it if it is missing, and locks it until the handle is gone (the system
/// unlocks it when the process ends, however it ends). `flags` are further ones of open(2). A
/// handle without a descriptor: another one holds it. Throws Error(failure) if it cannot be opened
/// or locked.
FileHandle open_locked(const std::filesystem::path& path, int flags = 0);

/// One process and one thread at a time.
class AppendedFile {
 public:
  /// `handle` is `path`, open for writing; its first `whole_bytes` bytes are whole lines. What is
  /// behind them, left by a run that was killed while it wrote, is cut off. Throws Error(failure).
  AppendedFile(std::filesystem::path path, FileHandle handle, std::uintmax_t whole_bytes,
               const char* when_full = resumes_when_free);

  /// Throws Error(failure), with the lines before as they were, for a full disk and the like, or
  /// if another program changed the file's size, moved it or removed it.
  void append(std::string_view lines);
  /// Keeps the first `bytes`, which are whole lines. Throws Error(failure).
  void cut(std::uintmax_t bytes);
  /// Waits until all is on the disk. Throws Error(failure), as append() does.
  void sync();
  /// Removes the file, unless another has taken its name.
  void remove();

  const std::filesystem::path& path() const { return path_; }

 private:
  void require_untouched() const;

  std::filesystem::path path_;
  FileHandle handle_;
  std::uintmax_t size_;  ///< bytes of whole lines
  const char* when_full_;
};

}  // namespace coppice
