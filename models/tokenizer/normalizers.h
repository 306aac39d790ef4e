// Normalizers of tokenizer.json: they rewrite a text before it is looked up.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/tokenizer/allowance.h"
#include "models/tokenizer/json_place.h"

namespace coppice::tokenization {

struct NormalText {
  std::string text;
  bool at_start = false;   ///< its first character stood at the whole text's beginning
  bool continues = false;  ///< text stands before it, which it was cut from
};

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual void apply(NormalText& text, Allowance& allowance) const = 0;
  /// Whether no text gets shorter, in bytes.
  virtual bool keeps_bytes() const { return false; }
};

using Normalizers = std::vector<std::unique_ptr<Normalizer>>;

/// Reads the normalizer at `place` into `out`, a sequence's members one by one.
void read_normalizer(const JsonPlace& place, Normalizers& out);

/// One after another.
void normalize(const Normalizers& normalizers, NormalText& text, Allowance& allowance);

}  // namespace coppice::tokenization
