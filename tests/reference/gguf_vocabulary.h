// The tokenizers of tests/golden/gguf as GGUF files.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/json_file.h"
#include "models/tokenizer/tokenizer.h"
#include "reference/gguf_file.h"
#include "reference/sentencepiece_proto.h"
#include "reference/tiny_model.h"

namespace coppice::testing {

inline nlohmann::json gguf_golden(const std::string& name) {
  const auto path =
      std::filesystem::path(COPPICE_SOURCE_DIR) / "tests/golden/gguf" / (name + ".json");
  return *read_json_object(path, 1 << 20);
}

inline GgufBytes golden_metadata(const nlohmann::json& golden, const std::string& architecture) {
  GgufBytes file = shapes_of(architecture);
  file.add("tokenizer.ggml.tokens", golden.at("tokens").get<std::vector<std::string>>());
  file.add("tokenizer.ggml.token_type", golden.at("token_type").get<std::vector<int>>());
  file.add("tokenizer.ggml.bos_token_id", 1).add("tokenizer.ggml.eos_token_id", 2);
  return file;
}

inline GgufBytes bpe_metadata(const nlohmann::json& golden, const std::string& pre,
                              const std::string& architecture = "llama") {
  GgufBytes file = golden_metadata(golden, architecture);
  file.add("tokenizer.ggml.model", "gpt2").add("tokenizer.ggml.pre", pre);
  return file.add("tokenizer.ggml.merges", golden.at("merges").get<std::vector<std::string>>());
}

inline GgufBytes sentencepiece_metadata(const nlohmann::json& golden,
                                        const std::string& architecture = "llama") {
  GgufBytes file = golden_metadata(golden, architecture);
  file.add("tokenizer.ggml.model", "llama");
  return file.add("tokenizer.ggml.scores", golden.at("scores").get<std::vector<float>>());
}

/// The same pieces as a tokenizer.model.
inline std::string tokenizer_model(const nlohmann::json& golden, bool marks = true) {
  SentencepieceProto proto;
  proto.byte_fallback = true;
  if (!marks) proto.normalizer += SentencepieceProto::number_field(3, 0);
  for (std::size_t i = 0; i + 1 < golden["tokens"].size(); ++i) {
    auto text = golden["tokens"][i].get<std::string>();
    if (text == "  ") text = "\u2581\u2581";
    proto.piece(text, static_cast<PieceKind>(golden["token_type"][i].get<int>()),
                golden["scores"][i].get<float>());
  }
  return proto.file();
}

inline std::unique_ptr<Tokenizer> load_gguf(const GgufBytes& file) {
  const TemporaryFolder folder;
  write_file(folder.path() / "m.gguf", file.bytes());
  return Tokenizer::load(folder.path() / "m.gguf");
}

}  // namespace coppice::testing
