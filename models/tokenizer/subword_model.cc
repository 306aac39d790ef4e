#include "models/tokenizer/subword_model.h"

#include <algorithm>

#include "models/tokenizer/byte_level.h"

namespace coppice::tokenization {

SubwordModel::SubwordModel(const JsonPlace& place) : vocabulary_(place.at("vocab")) {
  if (place.flag("byte_fallback", false)) byte_pieces_ = vocabulary_.byte_pieces();
}

bool SubwordModel::keeps_all_text(bool spelt) const {
  if (!spelt) {
    return !byte_pieces_.empty() &&
           std::find(byte_pieces_.begin(), byte_pieces_.end(), -1) == byte_pieces_.end();
  }
  for (int byte = 0; byte < 256; ++byte) {
    if (vocabulary_.id(ByteAlphabet::get().of(static_cast<unsigned char>(byte))) < 0) return false;
  }
  return true;
}

bool SubwordModel::append_bytes(std::string_view text, std::vector<TokenId>& out) const {
  if (byte_pieces_.empty()) return false;
  const auto piece = [&](char byte) { return byte_pieces_[static_cast<unsigned char>(byte)]; };
  if (std::any_of(text.begin(), text.end(), [&](char byte) { return piece(byte) < 0; })) {
    return false;
  }
  for (const char byte : text) out.push_back(piece(byte));
  return true;
}

std::unique_ptr<SubwordModel> read_subword_model(const JsonPlace& place) {
  // Old files leave the type out.
  const auto named = place.find("type");
  const std::string type = named ? named->text() : place->contains("merges") ? "BPE" : "Unigram";
  if (type == "BPE") return read_bpe(place);
  if (type == "Unigram") return read_unigram(place);
  place.refuse_type("model");
}

}  // namespace coppice::tokenization
