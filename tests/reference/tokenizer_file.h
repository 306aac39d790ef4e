// Tokenizers from the text of their files.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "models/tokenizer/tokenizer.h"
#include "reference/tiny_model.h"

namespace coppice::testing {

/// The tokenizer of a folder with this file and, if not empty, a tokenizer_config.json.
inline std::unique_ptr<Tokenizer> load_tokenizer(const std::string& name, const std::string& bytes,
                                                 const std::string& config = "") {
  const TemporaryFolder folder;
  write_file(folder.path() / name, bytes);
  if (!config.empty()) write_file(folder.path() / "tokenizer_config.json", config);
  return Tokenizer::load(folder.path());
}

inline std::unique_ptr<Tokenizer> load_json(const nlohmann::json& json,
                                            const std::string& config = "") {
  return load_tokenizer("tokenizer.json", json.dump(), config);
}

}  // namespace coppice::testing
