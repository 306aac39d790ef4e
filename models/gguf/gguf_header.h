// What stands in a GGUF file before its tensors' data.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>

#include "models/gguf/gguf_file.h"

namespace coppice {

inline constexpr std::string_view gguf_magic = "GGUF";

/// Reads the header of an open file, adds its tensors, which are in the file of number `index`, and
/// returns its metadata. Throws Error(failure) as GgufFile's constructor does.
JsonObject read_gguf_header(const GgufFile::Part& part, std::size_t index,
                            std::map<std::string, GgufTensor>& tensors);

}  // namespace coppice
