// A large output file that is written in pieces, and that has its name only once it is whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "base/files.h"

namespace coppice {

/// Whether a file of that name may be replaced.
enum class Existing { refuse, replace };

/// Throws Error(failure) for what stands against a new file beforehand: a folder that is missing or
/// may not be written, and a name that is taken (with Existing::replace: by what is no regular
/// file). `remedy` is for a name that is taken.
void require_new_file(const std::filesystem::path& path, Existing existing, const char* remedy);

/// Several threads may write to it at once. Until finish() it has no name, so that a kill leaves
/// nothing. Where the file system has no such files, it stands beside `path` under a name of its
/// own, which the destructor removes.
class NewFile {
 public:
  /// Reserves the disk space of all `bytes`, so that a disk that is too small is found out at once.
  /// Throws Error(failure).
  NewFile(const std::filesystem::path& path, std::uint64_t bytes);
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  /// Bytes that nobody writes are 0. Throws Error(failure).
  void write_at(std::uint64_t offset, std::span<const std::byte> bytes);
  /// Waits until all is on the disk, and gives the file its name; one that it replaces leaves its
  /// permissions. Throws Error(failure), with Existing::refuse also if the name was taken
  /// meanwhile.
  void finish(Existing existing);

 private:
  std::filesystem::path path_;   ///< for messages
  std::filesystem::path place_;  ///< what the name leads to
  std::filesystem::path beside_;
  FileHandle file_;
};

}  // namespace coppice
