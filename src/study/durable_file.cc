#include "study/durable_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace coppice::study {
namespace {

namespace fs = std::filesystem;

constexpr mode_t usual_mode = 0644;

}  // namespace

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
                    full ? when_full : "check the folder and its permissions"));
}

FileHandle open_file(const fs::path& path, int flags, const char* when_full) {
  int descriptor = -1;
  do {
    descriptor = ::open(path.c_str(), flags | O_CLOEXEC, usual_mode);
  } while (descriptor < 0 && errno == EINTR);
  if (descriptor < 0) throw_write_failure(path, errno, when_full);
  return FileHandle(descriptor);
}

bool write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(descriptor, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
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

void write_file(const fs::path& path, std::string_view text, const char* when_full) {
  fs::path beside = path;
  beside += ".part";
  const auto fail = [&](int error) {
    ::unlink(beside.c_str());
    throw_write_failure(path, error, when_full);
  };
  {
    const FileHandle file = open_file(beside, O_WRONLY | O_CREAT | O_TRUNC, when_full);
    if (!write_all(file.get(), text) || ::fsync(file.get()) != 0) fail(errno);
  }
  if (::rename(beside.c_str(), path.c_str()) != 0) fail(errno);
  sync_folder(path.parent_path());
}

std::string read_file(const fs::path& path, const std::string& what, std::uintmax_t most) {
  const std::string name = cat(what, " ", quote(path.string()));
  std::error_code error;
  if (!fs::exists(path, error)) {
    throw_failure(cat(name, ": no such file; check its name"));
  }
  if (!fs::is_regular_file(path, error)) {
    throw_failure(cat(name, ": not a regular file; name a file"));
  }
  const std::uintmax_t bytes = fs::file_size(path, error);
  if (error) throw_failure(cat(name, ": ", error.message()));
  if (bytes > most) {
    throw_failure(cat(name, ": ", bytes, " bytes are more than the ", most, " that it may have"));
  }
  std::string text(static_cast<std::size_t>(bytes), '\0');
  std::ifstream in(path, std::ios::binary);
  if (!in || !in.read(text.data(), static_cast<std::streamsize>(text.size()))) {
    throw_failure(cat(name, ": cannot be read; check its permissions"));
  }
  return text;
}

}  // namespace coppice::study
