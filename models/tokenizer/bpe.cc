// Byte-pair encoding: of all neighbours the pair with the lowest rank is merged, the leftmost of
// equals, until no pair is left (Sennrich et al. 2016).
#include <algorithm>
#include <array>
#include <limits>
#include <unordered_set>

#include "base/error.h"
#include "models/tokenizer/code_points.h"
#include "models/tokenizer/merge_table.h"
#include "models/tokenizer/subword_model.h"

namespace coppice::tokenization {
namespace {

constexpr std::uint32_t no_rank = std::numeric_limits<std::uint32_t>::max();
constexpr std::string_view word_mark = "\xE2\x96\x81";  // U+2581

/// Pieces of a word that is being merged, in a list of neighbours.
struct Symbol {
  TokenId id = 0;
  std::uint32_t previous = 0, next = 0;  ///< no_rank: none
  std::uint32_t rank = no_rank;          ///< of the pair with the next one; no_rank: not a pair
};

class Bpe : public SubwordModel {
 public:
  explicit Bpe(const JsonPlace& place) : SubwordModel(place) {
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      const auto affix = place.find(key);
      if (affix && !affix->text().empty()) {
        affix->refuse("word affixes are unknown to coppice; give prompts with --prompt-ids");
      }
    }
    if (const auto dropout = place.find("dropout"); dropout && dropout->number() != 0.0) {
      dropout->refuse("random merges would make another text of each prompt; set it to null");
    }
    if (const auto unknown = place.find("unk_token")) {
      unknown_ = vocabulary_.id(unknown->text());
      if (unknown_ < 0) unknown->refuse("is not in the vocabulary; fetch the file again");
    }
    fuses_unknown_ = place.flag("fuse_unk", false);
    ignores_merges_ = place.flag("ignore_merges", false);
    read_merges(place.at("merges"));
    for (std::int32_t code = 0; code < static_cast<std::int32_t>(short_characters_.size());
         ++code) {
      std::string character;
      append_utf8(code, character);
      short_characters_[static_cast<std::size_t>(code)] = vocabulary_.id(character);
    }
    // Where unknown characters are dropped, those at their sides may be merged.
    const bool drops = unknown_ < 0 && !keeps_all_text(false);
    cuts_at_marks_ = !ignores_merges_ && !drops && vocabulary_.id(word_mark) >= 0;
  }

  void encode(std::string_view word, std::vector<TokenId>& out) const override {
    if (ignores_merges_) {
      if (const TokenId whole = vocabulary_.id(word); whole >= 0) {
        out.push_back(whole);
        return;
      }
    }
    std::vector<TokenId> ids;
    ids.reserve(word.size());
    spell(word, ids);
    constexpr std::size_t few = 32;
    if (ids.size() <= few) {
      merge_few(ids);
      out.insert(out.end(), ids.begin(), ids.end());
    } else {
      merge_many(ids, out);
    }
  }

  // A text without pre-tokenizer is one word. No merge crosses the border before a word mark if
  // no merged piece holds the mark behind the character that stands there.
  std::size_t independent_bytes(std::string_view word) const override {
    if (!cuts_at_marks_) return word.size();
    for (std::size_t at = 0; (at = word.find(word_mark, at + 1)) != word.npos;) {
      std::size_t before = at - 1;
      while (before > 0 && (static_cast<unsigned char>(word[before]) & 0xC0) == 0x80) --before;
      if (!before_mark_.contains(std::string(word.substr(before, at - before)))) return at;
    }
    return word.size();
  }

 private:
  void read_merges(const JsonPlace& place) {
    if (place.size() > 4 * static_cast<std::size_t>(most_pieces)) {
      place.refuse(cat(place.size(), " merges are too many; fetch the file again"));
    }
    merges_.reserve(place.size());
    std::uint32_t rank = 0;
    for (std::size_t i = 0; i < place.size(); ++i) {
      const nlohmann::json& merge = (*place)[i];
      std::string_view left, right;
      if (merge.is_string()) {
        const std::string_view text = merge.get_ref<const std::string&>();
        if (text.starts_with("#version")) continue;
        const std::size_t space = text.find(' ');
        if (space == text.npos || text.find(' ', space + 1) != text.npos) {
          place.at(i).refuse(cat(quote(text), " is not two pieces; fetch the file again"));
        }
        left = text.substr(0, space);
        right = text.substr(space + 1);
      } else {
        const JsonPlace pair = place.at(i);
        if (pair.size() != 2) pair.refuse("is not two pieces; fetch the file again");
        left = pair.at(std::size_t{0}).text();
        right = pair.at(std::size_t{1}).text();
      }
      const std::string joined = cat(left, right);
      const auto known = [&](std::string_view piece) {
        const TokenId id = vocabulary_.id(piece);
        if (id < 0) {
          place.at(i).refuse(
              cat("the piece ", quote(piece), " is not in the vocabulary; fetch the file again"));
        }
        return id;
      };
      const TokenId left_id = known(left), right_id = known(right);
      merges_.add(left_id, right_id, {rank++, known(joined)});
      for (std::size_t at = 0; (at = joined.find(word_mark, at + 1)) != joined.npos;) {
        std::size_t before = at - 1;
        while (before > 0 && (static_cast<unsigned char>(joined[before]) & 0xC0) == 0x80) --before;
        before_mark_.insert(joined.substr(before, at - before));
      }
    }
  }

  /// The pieces of single characters, bytes or unknown ones that a word begins as.
  void spell(std::string_view word, std::vector<TokenId>& ids) const {
    bool unknown = false;  // one waits: it may take in the next one
    while (!word.empty()) {
      const std::string_view character = word.substr(0, code_point_bytes(word));
      std::string_view rest = character;
      const std::int32_t code = take_code_point(rest);
      word.remove_prefix(character.size());
      const TokenId id = code < static_cast<std::int32_t>(short_characters_.size())
                             ? short_characters_[static_cast<std::size_t>(code)]
                             : vocabulary_.id(character);
      if (id >= 0) {
        if (unknown) ids.push_back(unknown_);
        unknown = false;
        ids.push_back(id);
      } else if (!append_bytes(character, ids) && unknown_ >= 0) {
        if (unknown && !fuses_unknown_) ids.push_back(unknown_);
        unknown = true;
      }
    }
    if (unknown) ids.push_back(unknown_);
  }

  void merge_few(std::vector<TokenId>& ids) const {
    std::array<Merge, 32> pairs;
    const auto look_up = [&](std::size_t i) {
      const Merge* merge = merges_.find(ids[i], ids[i + 1]);
      pairs[i] = merge != nullptr ? *merge : Merge{no_rank, 0};
    };
    for (std::size_t i = 0; i + 1 < ids.size(); ++i) look_up(i);
    while (ids.size() > 1) {
      const std::size_t count = ids.size() - 1;
      std::size_t best = 0;
      for (std::size_t i = 1; i < count; ++i) {
        if (pairs[i].rank < pairs[best].rank) best = i;
      }
      if (pairs[best].rank == no_rank) return;
      ids[best] = pairs[best].id;
      ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(best) + 1);
      for (std::size_t i = best + 1; i + 1 < count; ++i) pairs[i] = pairs[i + 1];
      if (best > 0) look_up(best - 1);
      if (best + 1 < ids.size()) look_up(best);
    }
  }

  void merge_many(const std::vector<TokenId>& ids, std::vector<TokenId>& out) const {
    if (ids.size() >= no_rank) throw_failure("a word of 4 GB cannot be encoded; shorten the text");
    const auto count = static_cast<std::uint32_t>(ids.size());
    struct Candidate {
      std::uint32_t rank, at;
      bool operator>(const Candidate& other) const {
        return rank != other.rank ? rank > other.rank : at > other.at;
      }
    };
    std::vector<Symbol> symbols(count);
    std::vector<Candidate> heap;
    const auto look_up = [&](std::uint32_t at) {
      Symbol& symbol = symbols[at];
      symbol.rank = no_rank;
      if (symbol.next == no_rank) return;
      const Merge* merge = merges_.find(symbol.id, symbols[symbol.next].id);
      if (merge == nullptr) return;
      symbol.rank = merge->rank;
      heap.push_back({merge->rank, at});
    };
    for (std::uint32_t at = 0; at < count; ++at) {
      symbols[at] = {ids[at], at == 0 ? no_rank : at - 1, at + 1 == count ? no_rank : at + 1,
                     no_rank};
    }
    for (std::uint32_t at = 0; at < count; ++at) look_up(at);
    const auto later = [](const Candidate& a, const Candidate& b) { return a > b; };
    std::make_heap(heap.begin(), heap.end(), later);
    while (!heap.empty()) {
      std::pop_heap(heap.begin(), heap.end(), later);
      const auto [rank, at] = heap.back();
      heap.pop_back();
      Symbol& left = symbols[at];
      if (left.rank != rank) continue;  // merged or changed since
      Symbol& right = symbols[left.next];
      left.id = merges_.find(left.id, right.id)->id;
      right.rank = no_rank;
      left.next = right.next;
      if (left.next != no_rank) symbols[left.next].previous = at;
      const auto add = [&](std::uint32_t changed) {
        const std::size_t before = heap.size();
        look_up(changed);
        if (heap.size() > before) std::push_heap(heap.begin(), heap.end(), later);
      };
      add(at);
      if (left.previous != no_rank) add(left.previous);
    }
    for (std::uint32_t at = 0; at != no_rank; at = symbols[at].next) out.push_back(symbols[at].id);
  }

  MergeTable merges_;
  std::array<TokenId, 0x800> short_characters_;  ///< of one or two bytes, by code point
  std::unordered_set<std::string> before_mark_;  ///< characters before a word mark, in a piece
  bool cuts_at_marks_ = false;
  bool fuses_unknown_ = false;
  bool ignores_merges_ = false;
};

}  // namespace

std::unique_ptr<SubwordModel> read_bpe(const JsonPlace& place) {
  if (!place.at("vocab")->is_object()) {
    place.at("vocab").refuse("is not an object; fetch the file again");
  }
  return std::make_unique<Bpe>(place);
}

}  // namespace coppice::tokenization
