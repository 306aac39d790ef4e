// Words that were cut into pieces before: texts repeat their words.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"

namespace coppice::tokenization {

/// A bounded hash table from words to ids; when it is full it forgets all.
class WordCache {
 public:
  /// Longer words are not kept: few repeat.
  static constexpr std::size_t longest_word = 64;

  static std::uint64_t hash(std::string_view word) { return std::hash<std::string_view>{}(word); }

  /// nullptr data: not known.
  std::span<const TokenId> find(std::string_view word, std::uint64_t hash) const {
    if (slots_.empty()) return {};
    for (std::size_t at = hash & (slots_.size() - 1);; at = (at + 1) & (slots_.size() - 1)) {
      const Slot& slot = slots_[at];
      if (slot.length == 0) return {};
      if (slot.hash == hash && slot.length == word.size() &&
          std::string_view(text_).substr(slot.text, slot.length) == word) {
        return {ids_.data() + slot.first, slot.count};
      }
    }
  }

  /// A word that is not there yet, not empty, at most longest_word bytes.
  void add(std::string_view word, std::uint64_t hash, std::span<const TokenId> ids) {
    constexpr std::size_t most_words = std::size_t{1} << 16;
    if (slots_.empty() || words_ == most_words) {
      slots_.assign(2 * most_words, {});
      text_.clear();
      ids_.clear();
      words_ = 0;
    }
    std::size_t at = hash & (slots_.size() - 1);
    while (slots_[at].length != 0) at = (at + 1) & (slots_.size() - 1);
    const Slot slot = {
        hash, static_cast<std::uint32_t>(text_.size()), static_cast<std::uint32_t>(ids_.size()),
        static_cast<std::uint16_t>(word.size()), static_cast<std::uint16_t>(ids.size())};
    text_ += word;
    ids_.insert(ids_.end(), ids.begin(), ids.end());
    slots_[at] = slot;  // last: where memory runs out before, the word stays unknown
    ++words_;
  }

 private:
  struct Slot {
    std::uint64_t hash = 0;
    std::uint32_t text = 0, first = 0;  ///< where its text and ids begin
    std::uint16_t length = 0;           ///< bytes; 0: free
    std::uint16_t count = 0;            ///< of ids
  };
  std::vector<Slot> slots_;
  std::string text_;
  std::vector<TokenId> ids_;
  std::size_t words_ = 0;
};

}  // namespace coppice::tokenization
