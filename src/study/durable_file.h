// Files that are there whole or not at all.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace coppice::study {

/// An open file descriptor, closed with its owner. Move-only.
class FileHandle {
 public:
  FileHandle() = default;
  explicit FileHandle(int descriptor) : descriptor_(descriptor) {}
  FileHandle(FileHandle&& other) noexcept;
  FileHandle& operator=(FileHandle&& other) noexcept;
  ~FileHandle();
  int get() const { return descriptor_; }

 private:
  int descriptor_ = -1;
};

/// The remedy for a full disk where a request that is started again goes on from its files.
inline constexpr const char* resumes_when_free =
    "free some space and start again: what was done is kept";

/// Opens `path` with open(2)'s flags, never for child processes. Throws Error(failure).
FileHandle open_file(const std::filesystem::path& path, int flags,
                     const char* when_full = resumes_when_free);

/// Writes all of `text` at the file's end or position. False, with errno set, where it cannot.
bool write_all(int descriptor, std::string_view text);

/// Makes the names in `folder` last.
void sync_folder(const std::filesystem::path& folder);

/// Writes beside the file, to the disk, then renames: a full disk or a kill leaves the old file.
/// Throws Error(failure).
void write_file(const std::filesystem::path& path, std::string_view text,
                const char* when_full = resumes_when_free);

/// The whole file. Throws Error(failure) where it is not a regular file, cannot be read, or is
/// larger than `most` bytes. `what` names it in messages.
std::string read_file(const std::filesystem::path& path, const std::string& what,
                      std::uintmax_t most);

/// "WHERE: No space left on device; ..." with the remedy that belongs to errno `error`, which
/// for a full disk is `when_full`.
[[noreturn]] void throw_write_failure(const std::filesystem::path& path, int error,
                                      const char* when_full = resumes_when_free);

}  // namespace coppice::study
