// Pre-tokenizers of tokenizer.json: they cut a text into words.
#pragma once

#include <memory>
#include <vector>

#include "models/tokenizer/allowance.h"
#include "models/tokenizer/json_place.h"
#include "models/tokenizer/words.h"

namespace coppice::tokenization {

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void apply(Words& words, Allowance& allowance) const = 0;
  /// Whether text is lost between words.
  virtual bool drops_text() const { return false; }
};

struct PreTokenizers {
  std::vector<std::unique_ptr<PreTokenizer>> stages;
  /// The last stage spells words in the byte alphabet: that is left to who looks words up, so that
  /// a word which is known already need not be spelt.
  bool spells_bytes = false;
};

PreTokenizers read_pre_tokenizers(const JsonPlace& place);

}  // namespace coppice::tokenization
