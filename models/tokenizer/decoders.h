// Decoders of tokenizer.json: they turn pieces back into text.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "models/tokenizer/allowance.h"
#include "models/tokenizer/json_place.h"

namespace coppice::tokenization {

class Decoder {
 public:
  virtual ~Decoder() = default;
  /// Rewrites the pieces of a whole text.
  virtual void apply(std::vector<std::string>& pieces, Allowance& allowance) const = 0;
  /// What one piece adds inside a text, as bytes: it may be a part of a character.
  virtual void inside(std::string& piece, Allowance& allowance) const = 0;
};

class Decoders {
 public:
  Decoders() = default;
  explicit Decoders(const JsonPlace& place);
  std::string text_of(std::vector<std::string> pieces) const;
  std::string bytes_of(std::string_view piece) const;

 private:
  void read(const JsonPlace& place);
  std::string file_;
  std::vector<std::unique_ptr<Decoder>> stages_;
  bool spaced_ = true;  ///< no decoder is named: spaces stand between pieces
  bool whole_ = false;  ///< pieces are joined by then: what follows acts on the whole text
};

}  // namespace coppice::tokenization
