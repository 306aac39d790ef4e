// Files read and written whole: what stands under a name is the old text or the new one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace coppice {

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

/// Remedies for a full disk: of any output, and of a request that goes on from its files when it
/// is started again.
inline constexpr const char* free_space = "free some space, or write elsewhere";
inline constexpr const char* resumes_when_free =
    "free some space and start again: what was done is kept";

/// What umask(2) leaves of it is a new file's mode.
inline constexpr unsigned usual_mode = 0666;

/// Opens `path` with open(2)'s flags, never for child processes. Throws Error(failure).
FileHandle open_file(const std::filesystem::path& path, int flags,
                     const char* when_full = resumes_when_free);

/// Writes all of `text` at the file's end or position, and waits where a non-blocking descriptor
/// has no room. False, with errno set, if it cannot.
bool write_all(int descriptor, std::string_view text);

/// Makes the names in `folder` last.
void sync_folder(const std::filesystem::path& folder);

/// Writes a whole output file, to the disk. A regular file, or a name that is free, gets its new
/// text in one step: written beside it under a name of its own, then renamed, so that a full disk,
/// a kill or a second writer leaves the old file or a new one. It keeps its permissions, and a
/// symbolic link stays: what it leads to is replaced. Anything else (a device, a pipe, an open
/// file under /dev/fd) is written into. Throws Error(failure).
void write_file(const std::filesystem::path& path, std::string_view text,
                const char* when_full = free_space);

/// The same for a name that the program makes up in a folder: what stands there and is no regular
/// file is not ours. It is neither followed nor written into nor replaced, but refused.
void write_own_file(const std::filesystem::path& path, std::string_view text,
                    const char* when_full = free_space);

/// Throws Error(failure), as write_file() would, for what stands against it beforehand: a folder
/// that is missing or may not be written, a folder of this name, a file that may not be written.
void require_writable(const std::filesystem::path& path);

/// Throws Error(failure) where a name that the program makes up is taken by what is no regular
/// file.
void require_own_name(const std::filesystem::path& path);

/// Whether the folder has such an entry, if only a symbolic link to nothing or a file that may not
/// be looked at: what is there must not be taken for absent.
bool is_there(const std::filesystem::path& path);

/// A name in the same folder, of a file that is not whole yet and will be renamed.
std::filesystem::path name_beside(const std::filesystem::path& path);

/// Whether a file of this name is what a killed write_file() left behind.
bool is_unfinished(const std::filesystem::path& name);

/// A regular file, open for reading. Throws Error(failure), as read_file() does.
FileHandle open_to_read(const std::filesystem::path& path, const std::string& what,
                        const char* remedy = "check its name");

/// The whole file. Throws Error(failure) if it is not a regular file, cannot be read, or is
/// larger than `most` bytes. `what`, which may be empty, names it in messages; `remedy` is for a
/// file that is not there.
std::string read_file(const std::filesystem::path& path, const std::string& what,
                      std::uintmax_t most, const char* remedy = "check its name");

/// The same of a regular file that is open, from its beginning; `name` begins its messages.
std::string read_file(const FileHandle& file, const std::string& name,
                      std::uintmax_t most = std::numeric_limits<std::uintmax_t>::max());

/// What tells a file from another one and from itself after a change.
struct FileStamp {
  std::uint64_t device = 0, inode = 0, bytes = 0;
  std::int64_t modified_ns = 0;
  bool operator==(const FileStamp&) const = default;
};
/// Throws Error(failure) if the system does not tell; `name` begins the message.
FileStamp stamp_of(const FileHandle& file, const std::string& name);
/// The same of a path; std::nullopt if nothing can be found there.
std::optional<FileStamp> stamp_of(const std::filesystem::path& path);

/// Fills `to` with a file's bytes from `offset` on. Throws Error(failure) if the disk fails or the
/// file ends before; `name` begins the message, and `when_shorter` is the remedy for the latter.
void fill_from(const FileHandle& file, const std::string& name, std::uint64_t offset,
               std::span<std::byte> to, const char* when_shorter = "start again");

/// "WHERE: No space left on device; ..." with the remedy that belongs to errno `error`, which
/// for a full disk is `when_full`.
[[noreturn]] void throw_write_failure(const std::filesystem::path& path, int error,
                                      const char* when_full = resumes_when_free);

}  // namespace coppice
