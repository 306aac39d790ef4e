#include "models/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace coppice {

MappedFile::MappedFile(const std::filesystem::path& path) {
  const std::string name = path.string();
  // O_NONBLOCK: a FIFO must not hang the open.
  file_ = ::open(name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file_ < 0) {
    const int reason = errno;
    throw_failure(cat(name, ": cannot be opened: ", std::strerror(reason),
                      "; check the path and its permissions"));
  }
  // From here on the destructor would not run: the file is closed by hand.
  struct stat about = {};
  if (::fstat(file_, &about) != 0 || !S_ISREG(about.st_mode)) {
    ::close(std::exchange(file_, -1));
    throw_failure(cat(name, ": not a regular file"));
  }
  size_ = static_cast<std::size_t>(about.st_size);
  if (size_ == 0) return;
  void* memory = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file_, 0);
  if (memory == MAP_FAILED) {
    const int reason = errno;
    ::close(std::exchange(file_, -1));
    throw_failure(cat(name, ": ", size_, " bytes cannot be mapped into memory: ",
                      std::strerror(reason), "; raise the limit on address space"));
  }
  data_ = static_cast<const std::byte*>(memory);
}

MappedFile::MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(file_, other.file_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
  if (file_ >= 0) ::close(file_);
}

bool MappedFile::still_whole() const {
  struct stat about = {};
  return file_ < 0 ||
         (::fstat(file_, &about) == 0 && static_cast<std::size_t>(about.st_size) >= size_);
}

}  // namespace coppice
