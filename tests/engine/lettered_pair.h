// A tiny pair whose tokens are letters, so that its texts have text.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "engine/pair.h"

namespace coppice::testing {

/// A TinyPair of 96 tokens with a tokenizer.json: token i > 0 is the ASCII character 31 + i.
class LetteredPair : public TinyPair {
 public:
  explicit LetteredPair(const TinyModel& model = {}, double draft_noise = 0.3)
      : TinyPair(model, draft_noise) {
    nlohmann::json vocab = {{"<unk>", 0}};
    for (int letter = ' '; letter < 127; ++letter) {
      vocab[std::string(1, static_cast<char>(letter))] = letter - 31;
    }
    const nlohmann::json tokenizer = {
        {"model",
         {{"type", "BPE"}, {"unk_token", "<unk>"}, {"vocab", vocab}, {"merges", Json::array()}}},
        {"decoder", {{"type", "Fuse"}}}};
    write_file(path() / "target" / "tokenizer.json", tokenizer.dump());
  }

 private:
  using Json = nlohmann::json;
};

}  // namespace coppice::testing
