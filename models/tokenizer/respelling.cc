#include "models/tokenizer/respelling.h"

#include <algorithm>

#include "models/tokenizer/code_points.h"

namespace coppice::tokenization {

bool may_steer(std::string_view text, bool special) {
  constexpr std::int32_t word_boundary = 0x2581;
  int characters = 0;
  bool is_space_only = true;
  for (; !text.empty(); ++characters) {
    const std::int32_t code = take_code_point(text);
    is_space_only = is_space_only && (is_space(code) || code == word_boundary);
  }
  return !is_space_only && (special || characters > 1);
}

Respelling::Respelling(std::vector<Piece> pieces, TokenId unknown, const Encode& encode,
                       const Encode& bytes) {
  const std::vector<TokenId> last_resort(unknown >= 0 ? 1 : 0, unknown);
  for (const auto& [text, id] : pieces) spellings_.emplace(id, last_resort);
  // The rest of a piece holds shorter ones only.
  std::stable_sort(pieces.begin(), pieces.end(), [](const Piece& one, const Piece& other) {
    return one.first.size() < other.first.size();
  });
  for (const auto& [text, id] : pieces) {
    const std::size_t first = code_point_bytes(text);
    std::vector<TokenId> tokens;
    if (first < text.size()) {
      encode(text.substr(0, first), tokens);
      encode(text.substr(first), tokens);
    } else {
      bytes(text, tokens);
      if (tokens.empty()) continue;
    }
    // More than a token for each byte is a normalizer's doing, which could double with each piece.
    if (tokens.size() <= text.size()) apply(tokens, 0);
    if (tokens.size() <= text.size()) spellings_[id] = std::move(tokens);
  }
}

bool Respelling::has_any(const std::vector<TokenId>& tokens, std::size_t from) const {
  return !spellings_.empty() &&
         std::any_of(tokens.begin() + static_cast<std::ptrdiff_t>(from), tokens.end(),
                     [&](TokenId token) { return has(token); });
}

void Respelling::append(TokenId token, std::vector<TokenId>& out) const {
  const auto found = spellings_.find(token);
  if (found == spellings_.end()) {
    out.push_back(token);
  } else {
    out.insert(out.end(), found->second.begin(), found->second.end());
  }
}

void Respelling::apply(std::vector<TokenId>& tokens, std::size_t from) const {
  if (!has_any(tokens, from)) return;
  const auto begin = tokens.begin() + static_cast<std::ptrdiff_t>(from);
  const std::vector<TokenId> given(begin, tokens.end());
  tokens.erase(begin, tokens.end());
  for (const TokenId token : given) append(token, tokens);
}

}  // namespace coppice::tokenization
