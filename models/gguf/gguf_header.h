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

/// What stands in the metadata for a long list that nobody looks at: a binary value without bytes,
/// which is of no kind that anybody wants, with the list's place in the file.
inline nlohmann::json left_out(std::uint64_t begin) { return nlohmann::json::binary({}, begin); }
/// The list of a key, which begins there.
nlohmann::json read_gguf_list(const GgufFile::Part& part, std::uint64_t begin,
                              const std::string& key);

}  // namespace coppice
