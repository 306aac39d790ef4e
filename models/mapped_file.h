// A file mapped into memory, read-only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace coppice {

/// Move-only. The file must keep its length while it is mapped: reading pages that were cut off
/// raises SIGBUS. still_whole() tells whether it did.
class MappedFile {
 public:
  MappedFile() = default;
  /// Throws Error(failure): no such file, not a regular file, unreadable.
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  bool still_whole() const;

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  int file_ = -1;
};

}  // namespace coppice
