// What stands in a GGUF file before its tensors' data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "models/gguf/gguf_file.h"

namespace coppice {

inline constexpr std::string_view gguf_magic = "GGUF";

/// Kinds of values, by the number that a file has for them.
enum class GgufKind : std::uint32_t {
  u8,
  i8,
  u16,
  i16,
  u32,
  i32,
  f32,
  boolean,
  text,
  list,
  u64,
  i64,
  f64
};

/// Reads the header of an open file, adds its tensors, which are in the file of number `index`, and
/// returns its metadata. Throws Error(failure) as GgufFile's constructor does.
JsonObject read_gguf_header(const GgufFile::Part& part, std::size_t index,
                            std::map<std::string, GgufTensor>& tensors);

}  // namespace coppice
