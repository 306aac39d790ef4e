#include "models/tokenizer/character_map.h"

#include <cstdint>
#include <vector>

namespace coppice::tokenization {
namespace {

std::uint32_t word_at(std::string_view bytes, std::size_t index) {
  std::uint32_t word = 0;
  for (std::size_t i = 4; i-- > 0;) {
    word = word << 8 | static_cast<unsigned char>(bytes[4 * index + i]);
  }
  return word;
}

std::size_t offset(std::uint32_t unit) {
  return static_cast<std::size_t>((unit >> 10) << ((unit & (1u << 9)) >> 6));
}

bool has_value(std::uint32_t unit) { return (unit >> 8 & 1) != 0; }

}  // namespace

CharacterMap::CharacterMap(std::string bytes) : bytes_(std::move(bytes)) {}

bool CharacterMap::is_sound(std::string_view map) {
  if (map.empty()) return true;
  if (map.size() < 4) return false;
  const std::uint32_t trie_bytes = word_at(map, 0);
  map.remove_prefix(4);
  if (trie_bytes >= map.size() || trie_bytes % 4 != 0 || map.back() != '\0') return false;
  const std::string_view trie = map.substr(0, trie_bytes);
  const std::string_view strings = map.substr(trie_bytes);
  const std::size_t units = trie.size() / 4;
  if (units == 0) return false;
  std::vector<bool> seen(units);
  std::vector<std::size_t> open = {offset(word_at(trie, 0))};
  while (!open.empty()) {
    const std::size_t base = open.back();
    open.pop_back();
    if ((base | 0xff) >= units) return false;
    if (seen[base]) continue;
    seen[base] = true;
    for (std::size_t label = 0; label < 256; ++label) {
      const std::uint32_t unit = word_at(trie, base ^ label);
      if ((unit & (1u << 31 | 0xffu)) != label) continue;
      const std::size_t below = (base ^ label) ^ offset(unit);
      if (has_value(unit)) {
        constexpr std::size_t longest = 128;  // NFKC makes 33 bytes of a character
        if (below >= units) return false;
        const std::size_t at = word_at(trie, below) & 0x7fffffffu;
        if (at >= strings.size() || strings.substr(at, longest + 1).find('\0') == strings.npos) {
          return false;
        }
      }
      open.push_back(below);
    }
  }
  return true;
}

const char* CharacterMap::find(std::string_view text) const {
  if (bytes_.empty()) return nullptr;
  const std::size_t trie_bytes = word_at(bytes_, 0);
  const std::string_view trie = std::string_view(bytes_).substr(4, trie_bytes);
  std::size_t node = offset(word_at(trie, 0));
  for (const char c : text) {
    if (c == '\0') return nullptr;
    node ^= static_cast<unsigned char>(c);
    const std::uint32_t unit = word_at(trie, node);
    if ((unit & (1u << 31 | 0xffu)) != static_cast<unsigned char>(c)) return nullptr;
    node ^= offset(unit);
    if (has_value(unit)) {
      return bytes_.data() + 4 + trie_bytes + (word_at(trie, node) & 0x7fffffffu);
    }
  }
  return nullptr;
}

}  // namespace coppice::tokenization
