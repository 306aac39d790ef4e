// The element types that a GGUF file may name.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "kernels/weight_format.h"

namespace coppice {

struct GgmlType {
  std::uint32_t number;  ///< in a file
  std::string_view name;
  std::uint32_t block;                 ///< numbers of one block
  std::uint32_t block_bytes;           ///< its bytes
  std::optional<WeightFormat> format;  ///< none: coppice does not read it
};

/// nullptr if ggml has no type of this number.
const GgmlType* ggml_type(std::uint32_t number);
/// The type of that format.
const GgmlType& ggml_type(WeightFormat format);

}  // namespace coppice
