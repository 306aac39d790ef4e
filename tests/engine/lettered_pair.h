// A tiny pair whose tokens are letters, so that its texts have text.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/pair.h"

namespace coppice::testing {

/// A tokenizer.json of these pieces for a target; "<unk>", if it is one of them, stands for others.
inline void write_letters(const std::filesystem::path& target, const nlohmann::json& vocab) {
  nlohmann::json model = {{"type", "BPE"}, {"vocab", vocab}, {"merges", nlohmann::json::array()}};
  if (vocab.contains("<unk>")) model["unk_token"] = "<unk>";
  const nlohmann::json tokenizer = {{"model", model}, {"decoder", {{"type", "Fuse"}}}};
  write_file(target / "tokenizer.json", tokenizer.dump());
}

/// A TinyPair of 96 tokens with a tokenizer.json: token i > 0 is the ASCII character 31 + i.
class LetteredPair : public TinyPair {
 public:
  explicit LetteredPair(const TinyModel& model = {}, double draft_noise = 0.3)
      : TinyPair(model, draft_noise) {
    nlohmann::json vocab = {{"<unk>", 0}};
    for (int letter = ' '; letter < 127; ++letter) {
      vocab[std::string(1, static_cast<char>(letter))] = letter - 31;
    }
    write_letters(path() / "target", vocab);
  }
};

}  // namespace coppice::testing
