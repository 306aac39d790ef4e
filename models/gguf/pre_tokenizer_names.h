// Which name of tokenizer.ggml.pre stands for the parts of a tokenizer.json.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace coppice {

/// Finds, for a BPE of bytes, the name under which readers cut text into words as the file's
/// normalizer and pre_tokenizer do, and find the same pieces. Throws Error(failure), which `where`
/// begins, if there is none, or if the file has parts that no such file has.
std::string pre_tokenizer_name(const nlohmann::json& tokenizer, const std::string& where);

}  // namespace coppice
