// The safetensors format: an 8-byte little-endian header length, a JSON header, tensor bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "models/weight_source.h"

namespace coppice {

/// The length of a file's header, which its first 8 bytes (`head`) say. `file_bytes` is the whole
/// file's length, `name` its name for messages. Throws Error(failure): longer than the file or
/// than 16 MiB. (The format allows 100 MB; the header of 405 billion weights takes a hundredth.)
std::size_t safetensors_header_bytes(std::string_view head, std::uint64_t file_bytes,
                                     const std::string& name);

/// What a header of that length says about the `data_bytes` that follow it.
///
/// Everything the format demands is checked: a JSON object that begins with '{', no key twice,
/// known dtypes, shapes whose sizes do not overflow, and data offsets that cover the rest of the
/// file exactly once, without holes or overlaps. Throws Error(failure).
std::map<std::string, StoredTensor> parse_safetensors(std::string_view header,
                                                      std::uint64_t data_bytes,
                                                      const std::string& name);

/// An open safetensors file. Nothing of it is mapped: a file that is cut off or written over
/// while it is read is an error, and afterwards it may change as it likes.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::string& name() const { return name_; }
  std::uint64_t size() const { return stamp_.bytes; }
  const std::map<std::string, StoredTensor>& tensors() const { return tensors_; }
  /// Fills `to` with a tensor's bytes from `offset` on. Several threads may call it. Throws
  /// Error(failure) if the disk fails or the file has become shorter.
  void read(const StoredTensor& tensor, std::uint64_t offset, std::span<std::byte> to) const;
  std::vector<std::byte> read(const StoredTensor& tensor) const;
  /// Throws Error(failure) if the file was written to or cut since it was opened.
  void require_unchanged() const;

 private:
  std::string name_;
  FileHandle file_;
  FileStamp stamp_;  ///< when it was opened
  std::uint64_t data_begin_ = 0;
  std::map<std::string, StoredTensor> tensors_;
};

}  // namespace coppice
