// Unigram: the most probable sequence of pieces, by Viterbi's algorithm (Kudo 2018).
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "models/tokenizer/byte_trie.h"
#include "models/tokenizer/code_points.h"
#include "models/tokenizer/subword_model.h"

namespace coppice::tokenization {
namespace {

/// What an unknown character costs beyond the least probable piece, in nats: as sentencepiece has
/// it.
constexpr double unknown_penalty = 10.0;

class Unigram : public SubwordModel {
 public:
  explicit Unigram(const JsonPlace& place) : SubwordModel(place) {
    const JsonPlace pieces = place.at("vocab");
    std::vector<std::pair<std::string_view, std::int32_t>> texts;
    double least = 0.0;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      const JsonPlace piece = pieces.at(i);
      if (piece.size() != 2) piece.refuse("is not a piece and its score; fetch the file again");
      scores_.push_back(piece.at(1).number());
      if (!std::isfinite(scores_.back())) piece.refuse("has no finite score; fetch the file again");
      least = i == 0 ? scores_[0] : std::min(least, scores_.back());
      const auto id = static_cast<TokenId>(i);
      const std::size_t bytes = vocabulary_.piece(id).size();
      if (bytes == 0) piece.refuse("is empty; fetch the file again");
      if (bytes > longest_sought) {
        piece.refuse(cat("is a piece of ", bytes, " bytes; at most ", longest_sought,
                         " are allowed; fetch the file again"));
      }
      texts.emplace_back(vocabulary_.piece(id), id);
    }
    trie_ = ByteTrie(std::move(texts));
    unknown_score_ = least - unknown_penalty;
    if (const auto unknown = place.find("unk_id")) {
      unknown_ =
          static_cast<TokenId>(unknown->integer(0, static_cast<std::int64_t>(scores_.size()) - 1));
    }
  }

  void encode(std::string_view word, std::vector<TokenId>& out) const override {
    struct Best {
      double score = 0.0;
      std::size_t begin = std::string_view::npos;
      TokenId id = -1;
    };
    std::vector<Best> best(word.size() + 1);  // of what ends there
    const auto offer = [&](std::size_t begin, std::size_t end, TokenId id, double score) {
      Best& so_far = best[end];
      score += best[begin].score;
      if (so_far.begin == std::string_view::npos || score > so_far.score) {
        so_far = {score, begin, id};
      }
    };
    for (std::size_t begin = 0; begin < word.size();) {
      const std::size_t character = code_point_bytes(word.substr(begin));
      bool is_piece = false;
      trie_.prefixes(word.substr(begin), [&](std::size_t bytes, std::int32_t id) {
        offer(begin, begin + bytes, id, scores_[static_cast<std::size_t>(id)]);
        is_piece = is_piece || bytes == character;
      });
      if (!is_piece) offer(begin, begin + character, unknown_, unknown_score_);
      begin += character;
    }
    const std::size_t before = out.size();
    std::string_view unknown;  // neighbours of it are one
    for (std::size_t end = word.size(); end > 0;) {
      const Best& node = best[end];
      if (node.id == unknown_) {
        unknown = word.substr(node.begin, end - node.begin + unknown.size());
      } else {
        append_unknown(unknown, out);
        unknown = {};
        out.push_back(node.id);
      }
      end = node.begin;
    }
    append_unknown(unknown, out);
    std::reverse(out.begin() + static_cast<std::ptrdiff_t>(before), out.end());
  }

 private:
  /// Last to first, as encode() collects.
  void append_unknown(std::string_view text, std::vector<TokenId>& out) const {
    if (text.empty()) return;
    if (const TokenId whole = vocabulary_.id(text); whole >= 0) {
      out.push_back(whole);
      return;
    }
    if (append_bytes(text, out)) {
      std::reverse(out.end() - static_cast<std::ptrdiff_t>(text.size()), out.end());
      return;
    }
    if (unknown_ < 0) {
      throw_usage(cat("the tokenizer has no piece for ", quote(text.substr(0, 64)),
                      ", and no unknown piece; leave it out"));
    }
    out.push_back(unknown_);
  }

  std::vector<double> scores_;
  ByteTrie trie_;
  double unknown_score_ = 0.0;
};

}  // namespace

std::unique_ptr<SubwordModel> read_unigram(const JsonPlace& place) {
  if (!place.at("vocab")->is_array()) {
    place.at("vocab").refuse("is not a list; fetch the file again");
  }
  return std::make_unique<Unigram>(place);
}

}  // namespace coppice::tokenization
