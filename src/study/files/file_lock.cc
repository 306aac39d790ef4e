#include "study/files/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace coppice::study {
namespace {

/// Whether the name still leads to what was opened: a writer may have replaced it meanwhile.
bool is_still(const FileHandle& handle, const std::filesystem::path& path) {
  struct stat opened = {}, named = {};
  return ::fstat(handle.get(), &opened) == 0 && ::stat(path.c_str(), &named) == 0 &&
         opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

}  // namespace

FileHandle open_locked(const std::filesystem::path& path) {
  FileHandle handle = open_file(path, O_RDWR | O_CREAT);
  int locked = 0;
  do {
    locked = ::flock(handle.get(), LOCK_EX | LOCK_NB);
  } while (locked != 0 && errno == EINTR);
  if (locked == 0) return is_still(handle, path) ? std::move(handle) : FileHandle();
  if (errno == EWOULDBLOCK) return FileHandle();
  throw_failure(
      cat(path.string(), ": cannot be locked: ", std::strerror(errno), "; use a local disk"));
}

}  // namespace coppice::study
