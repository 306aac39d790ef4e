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

#include "models/mapped_file.h"

namespace coppice {

/// One tensor as stored. `bytes` may have any alignment.
struct StoredTensor {
  std::string dtype;  ///< as the format spells it: F32, BF16, I64, ...
  std::vector<std::uint64_t> shape;
  std::span<const std::byte> bytes;

  std::uint64_t elements() const;
};

/// What the header of a safetensors file says about its data, which `bytes` holds in full.
///
/// Everything the format demands is checked: the header's length (at most 100 MB), a JSON object
/// that begins with '{', no key twice, known dtypes, shapes whose sizes do not overflow, and
/// data offsets that cover the rest of the file exactly once, without holes or overlaps.
/// `name` is the file's name for messages. Throws Error(failure).
std::map<std::string, StoredTensor> parse_safetensors(std::span<const std::byte> bytes,
                                                      const std::string& name);

/// A memory-mapped safetensors file. Tensors point into the mapping.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::string& name() const { return name_; }
  std::size_t size() const { return file_.bytes().size(); }
  const std::map<std::string, StoredTensor>& tensors() const { return tensors_; }
  /// Throws Error(failure) if the file has shrunk since it was opened.
  void require_whole() const;

 private:
  std::string name_;
  MappedFile file_;
  std::map<std::string, StoredTensor> tensors_;
};

}  // namespace coppice
