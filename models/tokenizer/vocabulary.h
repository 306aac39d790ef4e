// Which piece has which id.
#pragma once

#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/types.h"
#include "models/tokenizer/json_place.h"

namespace coppice::tokenization {

/// Beyond four million pieces a vocabulary is taken for damage.
inline constexpr std::int64_t most_pieces = std::int64_t{1} << 22;

/// Bytes of a text that is looked for at every place of another one. Beyond, it is damage.
inline constexpr std::size_t longest_sought = 1024;

class Vocabulary {
 public:
  /// {"piece": id, ...}, or [["piece", score], ...] with ids from 0.
  explicit Vocabulary(const JsonPlace& place);
  /// Pieces by id, all different.
  explicit Vocabulary(std::span<const std::string> pieces);

  /// -1: no such piece. Of a piece that a list names twice the last id.
  TokenId id(std::string_view piece) const {
    const auto found = ids_.find(piece);
    return found == ids_.end() ? -1 : found->second;
  }
  /// Empty for an id without a piece.
  std::string_view piece(TokenId id) const {
    const bool known = id >= 0 && id < size();
    return known ? std::string_view(pieces_[static_cast<std::size_t>(id)]) : std::string_view();
  }
  /// The highest id, plus one.
  TokenId size() const { return static_cast<TokenId>(pieces_.size()); }
  /// Pieces, which are fewer if ids are left out.
  std::size_t entries() const { return ids_.size(); }
  std::size_t longest_piece() const { return longest_; }  ///< bytes

  /// Ids of "<0x00>" to "<0xFF>", -1 where missing.
  std::vector<TokenId> byte_pieces() const;

 private:
  std::deque<std::string> pieces_;  // ids_ refers to them
  std::unordered_map<std::string_view, TokenId> ids_;
  std::size_t longest_ = 0;
};

}  // namespace coppice::tokenization
