#include "base/files.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace coppice {
namespace {

namespace fs = std::filesystem;

int open_again(const fs::path& path, int flags) {
  int descriptor = -1;
  do {
    descriptor = ::open(path.c_str(), flags | O_CLOEXEC, usual_mode);
  } while (descriptor < 0 && errno == EINTR);
  return descriptor;
}

// What a chain of symbolic links leads to: a path, which need not exist, or (as /dev/stdout does)
// a descriptor that this process holds. Opening the latter's file anew would write from its start.
struct Resolved {
  fs::path path;
  int descriptor = -1;
};

Resolved resolve(fs::path path) {
  constexpr int most_links = 40;
  std::error_code error;
  const fs::path own_descriptors = fs::canonical("/proc/self/fd", error);
  for (int links = 0; links < most_links && fs::is_symlink(path, error); ++links) {
    const fs::path folder = fs::canonical(path.has_parent_path() ? path.parent_path() : ".", error);
    if (!error && folder == own_descriptors) return {path, std::stoi(path.filename())};
    const fs::path to = fs::read_symlink(path, error);
    if (error) break;
    path = path.parent_path() / to;  // `to` alone, if it is absolute
  }
  return {path};
}

void write_into(int descriptor, const fs::path& path, std::string_view text,
                const char* when_full) {
  if (!write_all(descriptor, text)) throw_write_failure(path, errno, when_full);
}

constexpr const char* unfinished = ".coppice-part";

}  // namespace

fs::path name_beside(const fs::path& path) {
  static std::atomic<unsigned> count = 0;
  return path.parent_path() / cat(".", path.filename().string().substr(0, 200), ".", ::getpid(),
                                  "-", count++, unfinished);
}

FileHandle::FileHandle(FileHandle&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)) {}
FileHandle& FileHandle::operator=(FileHandle&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}
FileHandle::~FileHandle() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void throw_write_failure(const fs::path& path, int error, const char* when_full) {
  const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  throw_failure(cat(path.string(), ": ", std::strerror(error), "; ",
                    full             ? when_full
                    : error == EPIPE ? "what reads it has ended"
                                     : "check the folder and its permissions"));
}

FileHandle open_file(const fs::path& path, int flags, const char* when_full) {
  const int descriptor = open_again(path, flags);
  if (descriptor < 0) throw_write_failure(path, errno, when_full);
  return FileHandle(descriptor);
}

bool write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(descriptor, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) {  // a program at the other end made it non-blocking
      pollfd room = {descriptor, POLLOUT, 0};
      if (::poll(&room, 1, -1) >= 0 || errno == EINTR) continue;
    }
    if (n < 0) return false;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

void sync_folder(const fs::path& folder) {
  const FileHandle handle = open_file(folder.empty() ? "." : folder, O_RDONLY | O_DIRECTORY);
  // Some file systems cannot sync a folder; its names are then as safe as they make them.
  if (::fsync(handle.get()) != 0 && errno != EINVAL && errno != EROFS) {
    throw_write_failure(folder, errno);
  }
}

namespace {

void replace(const fs::path& path, const fs::path& place, std::string_view text,
             const char* when_full) {
  struct stat old = {};
  const bool exists = ::lstat(place.c_str(), &old) == 0;
  if (!exists && errno != ENOENT) throw_write_failure(path, errno, when_full);
  // Renaming asks the folder alone: a file that may not be written stays as it is.
  if (exists && ::faccessat(AT_FDCWD, place.c_str(), W_OK, AT_EACCESS) != 0) {
    throw_write_failure(path, errno, when_full);
  }
  fs::path beside;
  const auto fail = [&](int error) {
    if (!beside.empty()) ::unlink(beside.c_str());
    throw_write_failure(path, error, when_full);
  };
  {
    int descriptor = -1;
    do {
      beside = name_beside(place);
      descriptor = open_again(beside, O_WRONLY | O_CREAT | O_EXCL);
    } while (descriptor < 0 && errno == EEXIST);  // another machine's, on a shared disk
    const FileHandle file(descriptor);
    if (descriptor < 0) {
      const int error = std::exchange(errno, 0);
      beside.clear();
      fail(error);
    }
    if (exists) {
      // The owner of another's file may not be ours to set; then its mode alone stays.
      [[maybe_unused]] const int owned = ::fchown(descriptor, old.st_uid, old.st_gid);
      if (::fchmod(descriptor, old.st_mode & 0777) != 0) fail(errno);
    }
    if (!write_all(descriptor, text) || ::fsync(descriptor) != 0) fail(errno);
  }
  if (::rename(beside.c_str(), place.c_str()) != 0) fail(errno);
  sync_folder(place.parent_path());
}

}  // namespace

void write_file(const fs::path& path, std::string_view text, const char* when_full) {
  const Resolved place = resolve(path);
  if (place.descriptor >= 0) return write_into(place.descriptor, path, text, when_full);
  struct stat old = {};
  const bool exists = ::stat(path.c_str(), &old) == 0;
  if (!exists && errno != ENOENT) throw_write_failure(path, errno, when_full);
  if (exists && !S_ISREG(old.st_mode)) {
    return write_into(open_file(path, O_WRONLY, when_full).get(), path, text, when_full);
  }
  replace(path, place.path, text, when_full);
}

void require_own_name(const fs::path& path) {
  struct stat there = {};
  if (::lstat(path.c_str(), &there) != 0 || S_ISREG(there.st_mode)) return;
  throw_failure(cat(path.string(),
                    S_ISLNK(there.st_mode)   ? ": is a symbolic link"
                    : S_ISDIR(there.st_mode) ? ": is a folder"
                                             : ": not a regular file",
                    "; move it away"));
}

void write_own_file(const fs::path& path, std::string_view text, const char* when_full) {
  require_own_name(path);
  replace(path, path, text, when_full);
}

void require_writable(const fs::path& path) {
  const auto may = [](const fs::path& what, int mode) {
    return ::faccessat(AT_FDCWD, what.c_str(), mode, AT_EACCESS) == 0;
  };
  struct stat old = {};
  if (::stat(path.c_str(), &old) == 0) {
    if (S_ISDIR(old.st_mode)) throw_write_failure(path, EISDIR, free_space);
    if (!may(path, W_OK)) throw_write_failure(path, errno, free_space);
    if (!S_ISREG(old.st_mode)) return;  // is written into, not replaced
  } else if (errno != ENOENT) {
    throw_write_failure(path, errno, free_space);
  }
  const Resolved place = resolve(path);
  if (place.descriptor >= 0) return;
  const fs::path folder = place.path.has_parent_path() ? place.path.parent_path() : ".";
  if (!may(folder, W_OK | X_OK)) throw_write_failure(path, errno, free_space);
}

bool is_there(const fs::path& path) {
  std::error_code unknown;
  return fs::symlink_status(path, unknown).type() != fs::file_type::not_found;
}

bool is_unfinished(const fs::path& name) { return name.extension() == unfinished; }

namespace {

// How messages about reading begin.
std::string name_of(const fs::path& path, const std::string& what) {
  return what.empty() ? path.string() : cat(what, " ", quote(path.string()));
}

std::uintmax_t size_of_regular(const FileHandle& file, const std::string& name) {
  struct stat about = {};
  if (::fstat(file.get(), &about) != 0) {
    throw_failure(cat(name, ": cannot be read: ", std::strerror(errno), "; check the disk"));
  }
  if (S_ISREG(about.st_mode)) return static_cast<std::uintmax_t>(about.st_size);
  throw_failure(cat(name, S_ISDIR(about.st_mode) ? ": is a folder" : ": not a regular file",
                    "; name a file"));
}

}  // namespace

FileHandle open_to_read(const fs::path& path, const std::string& what, const char* remedy) {
  const std::string name = name_of(path, what);
  // A pipe that nobody writes to must not be waited for.
  FileHandle file(open_again(path, O_RDONLY | O_NONBLOCK));
  const int error = errno;
  if (file.get() < 0 && error == ENOENT && is_there(path)) {
    throw_failure(cat(name, ": a symbolic link to what is not there; mend or remove it"));
  }
  if (file.get() < 0 && error == ENOENT) throw_failure(cat(name, ": no such file; ", remedy));
  if (file.get() < 0) {
    throw_failure(cat(name, ": cannot be read: ", std::strerror(error),
                      error == ENOTDIR || error == ELOOP || error == ENAMETOOLONG
                          ? "; check its name"
                          : "; check its permissions"));
  }
  size_of_regular(file, name);
  return file;
}

std::string read_file(const fs::path& path, const std::string& what, std::uintmax_t most,
                      const char* remedy) {
  return read_file(open_to_read(path, what, remedy), name_of(path, what), most);
}

std::string read_file(const FileHandle& file, const std::string& name, std::uintmax_t most) {
  const std::uintmax_t bytes = size_of_regular(file, name);
  if (bytes > most) {
    throw_failure(cat(name, ": ", bytes, " bytes are more than the ", most,
                      " that it may have; name another file"));
  }
  std::string text(static_cast<std::size_t>(bytes), '\0');
  fill_from(file, name, 0, std::as_writable_bytes(std::span(text)));
  return text;
}

void fill_from(const FileHandle& file, const std::string& name, std::uint64_t offset,
               std::span<std::byte> to, const char* when_shorter) {
  while (!to.empty()) {
    const ssize_t n = ::pread(file.get(), to.data(), to.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      throw_failure(cat(name, ": cannot be read: ", std::strerror(errno), "; check the disk"));
    }
    if (n == 0) throw_failure(cat(name, ": became shorter while it was read; ", when_shorter));
    offset += static_cast<std::uint64_t>(n);
    to = to.subspan(static_cast<std::size_t>(n));
  }
}

namespace {

FileStamp stamp_in(const struct stat& about) {
  return {about.st_dev, about.st_ino, static_cast<std::uint64_t>(about.st_size),
          std::int64_t{about.st_mtim.tv_sec} * 1'000'000'000 + about.st_mtim.tv_nsec};
}

}  // namespace

FileStamp stamp_of(const FileHandle& file, const std::string& name) {
  struct stat about = {};
  if (::fstat(file.get(), &about) != 0) {
    throw_failure(cat(name, ": cannot be read: ", std::strerror(errno), "; check the disk"));
  }
  return stamp_in(about);
}

std::optional<FileStamp> stamp_of(const fs::path& path) {
  struct stat about = {};
  if (::stat(path.c_str(), &about) != 0) return std::nullopt;
  return stamp_in(about);
}

}  // namespace coppice
