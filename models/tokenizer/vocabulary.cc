#include "models/tokenizer/vocabulary.h"

#include <algorithm>
#include <cstdio>

#include "base/error.h"

namespace coppice::tokenization {

Vocabulary::Vocabulary(const JsonPlace& place) {
  const auto refuse_size = [&](std::size_t size) {
    place.refuse(cat(size, " pieces are more than ", most_pieces, "; fetch the file again"));
  };
  if (place->size() > static_cast<std::size_t>(most_pieces)) refuse_size(place->size());
  if (place->is_array()) {
    for (std::size_t i = 0; i < place.size(); ++i) {
      const std::string& piece = place.at(i).at(std::size_t{0}).text();
      pieces_.push_back(piece);
      ids_[pieces_.back()] = static_cast<TokenId>(i);
    }
  } else if (place->is_object()) {
    ids_.reserve(place->size());
    for (const auto& [piece, value] : place->items()) {
      const bool fits = value.is_number_unsigned() &&
                        value.get<std::uint64_t>() < static_cast<std::uint64_t>(most_pieces);
      if (!fits) place.at(piece.c_str()).integer(0, most_pieces - 1);
      const auto id = value.get<std::size_t>();
      if (id >= pieces_.size()) pieces_.resize(id + 1);
      if (!pieces_[id].empty()) {
        place.refuse(cat("id ", id, " is both ", quote(pieces_[id]), " and ", quote(piece),
                         "; fetch the file again"));
      }
      pieces_[id] = piece;
      ids_.emplace(pieces_[id], static_cast<TokenId>(id));
    }
  } else {
    place.refuse("neither an object nor a list; fetch the file again");
  }
  for (const std::string& piece : pieces_) longest_ = std::max(longest_, piece.size());
}

Vocabulary::Vocabulary(std::span<const std::string> pieces) {
  ids_.reserve(pieces.size());
  for (const std::string& piece : pieces) {
    pieces_.push_back(piece);
    ids_.emplace(pieces_.back(), static_cast<TokenId>(pieces_.size() - 1));
    longest_ = std::max(longest_, piece.size());
  }
}

std::vector<TokenId> Vocabulary::byte_pieces() const {
  std::vector<TokenId> ids;
  for (int byte = 0; byte < 256; ++byte) {
    char text[8];
    std::snprintf(text, sizeof text, "<0x%02X>", byte);
    ids.push_back(id(text));
  }
  return ids;
}

}  // namespace coppice::tokenization
