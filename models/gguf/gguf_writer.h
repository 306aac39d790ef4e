// Writes a GGUF file, version 3: metadata, descriptions of tensors, tensor data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/new_file.h"
#include "kernels/weight_format.h"

namespace coppice {

/// A value as readers expect its type: counts and ids are uint32.
using GgufValue =
    std::variant<std::uint32_t, std::int32_t, float, bool, std::string, std::vector<std::int32_t>,
                 std::vector<float>, std::vector<bool>, std::vector<std::string>>;
/// In the order in which they are written.
using GgufMetadata = std::vector<std::pair<std::string, GgufValue>>;

struct GgufTensorToWrite {
  std::string name;
  std::vector<std::uint64_t> shape;  ///< [out, in], or [n]
  WeightFormat format = WeightFormat::f32;

  std::uint64_t elements() const;
};

class GgufWriter {
 public:
  /// Writes all but the tensors' data. Throws Error(failure) as NewFile does.
  GgufWriter(const std::filesystem::path& path, const GgufMetadata& metadata,
             const std::vector<GgufTensorToWrite>& tensors);

  /// Writes bytes of a tensor, by its index, from `offset` on. Several threads may call it. Throws
  /// Error(failure).
  void write(std::size_t tensor, std::uint64_t offset, std::span<const std::byte> bytes) {
    file_.write_at(plan_.begins[tensor] + offset, bytes);
  }
  /// Gives the file its name. Throws as NewFile::finish().
  void finish(Existing existing) { file_.finish(existing); }
  std::uint64_t bytes() const { return plan_.bytes; }  ///< of the whole file

 private:
  struct Plan {
    std::string header;
    std::vector<std::uint64_t> begins;  ///< of tensors, from the file's beginning
    std::uint64_t bytes = 0;
  };
  static Plan plan(const GgufMetadata& metadata, const std::vector<GgufTensorToWrite>& tensors);

  const Plan plan_;
  NewFile file_;
};

}  // namespace coppice
