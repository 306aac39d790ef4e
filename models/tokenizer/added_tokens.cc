#include "models/tokenizer/added_tokens.h"

#include <algorithm>

#include "base/error.h"
#include "models/tokenizer/code_points.h"
#include "models/tokenizer/regex.h"

namespace coppice::tokenization {
namespace {

/// Whether a character of a word stands before or behind a place in a text.
class WordBorders {
 public:
  WordBorders() : word_(R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200C}\x{200D}])") {}
  bool word_at(std::string_view text, std::size_t at) const {
    return at < text.size() && is_word(text.substr(at, code_point_bytes(text.substr(at))));
  }
  bool word_before(std::string_view text, std::size_t at) const {
    if (at == 0) return false;
    std::size_t begin = at - 1;
    while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
    return is_word(text.substr(begin, at - begin));
  }

 private:
  bool is_word(std::string_view character) const {
    std::size_t begin = 0, end = 0;
    Allowance allowance(character.size(), name_);
    return Regex::Matches(word_, character, allowance).next(begin, end);
  }
  Regex word_;
  const std::string name_ = "a built-in pattern";
};

/// Where white space beside a token begins and ends. Tokens may stand in one run of it, each of
/// which takes all: no run is walked twice.
class SpaceRuns {
 public:
  explicit SpaceRuns(std::string_view text) : text_(text) {}
  /// The end of the run that begins at `at`. Calls with rising `at`.
  std::size_t end_from(std::size_t at) {
    if (at >= end_) end_ = at + leading_space(text_.substr(at));
    return end_;
  }
  /// The beginning of the run that ends at `at`. Calls with rising `at`.
  std::size_t begin_to(std::size_t at) {
    const std::size_t behind = at - trailing_space(text_.substr(seen_, at - seen_));
    if (behind > seen_) begin_ = behind;
    seen_ = at;
    return begin_;
  }

 private:
  std::string_view text_;
  std::size_t end_ = 0;
  std::size_t seen_ = 0, begin_ = 0;  ///< the run that ends at seen_ begins there
};

const WordBorders& word_borders() {
  static const WordBorders borders;
  return borders;
}

}  // namespace

std::vector<AddedTokenSetting> read_added_tokens(const JsonPlace& place) {
  if (place.size() > static_cast<std::size_t>(most_pieces)) {
    place.refuse(cat(place.size(), " tokens are too many; fetch the file again"));
  }
  std::vector<AddedTokenSetting> tokens;
  for (std::size_t i = 0; i < place.size(); ++i) {
    const JsonPlace one = place.at(i);
    AddedTokenSetting token;
    token.where = cat(one.file(), ": ", one.path());
    token.content = one.at("content").text();
    token.id = static_cast<TokenId>(one.at("id").integer(0, most_pieces - 1));
    token.single_word = one.flag("single_word", false);
    token.lstrip = one.flag("lstrip", false);
    token.rstrip = one.flag("rstrip", false);
    token.special = one.flag("special", false);
    token.normalized = one.flag("normalized", !token.special);
    tokens.push_back(std::move(token));
  }
  return tokens;
}

AddedTokens::AddedTokens(std::span<const AddedTokenSetting> settings, const Vocabulary& vocabulary,
                         const Normalizers& normalizers, const std::string& file) {
  std::size_t bytes = 0;
  for (const AddedTokenSetting& setting : settings) bytes += setting.content.size();
  Allowance allowance(bytes, file);
  auto next_id = static_cast<std::int64_t>(vocabulary.entries());
  for (const AddedTokenSetting& setting : settings) {
    add(setting, vocabulary, normalizers, allowance, next_id);
  }
  for (const AddedToken& token : tokens_) ids_end_ = std::max(ids_end_, token.id + 1);
  for (const Pass pass : {Pass::given, Pass::given_in_part, Pass::normalized}) {
    finders_[static_cast<std::size_t>(pass)] = finder(pass);
  }
}

void AddedTokens::add(const AddedTokenSetting& setting, const Vocabulary& vocabulary,
                      const Normalizers& normalizers, Allowance& allowance, std::int64_t& next_id) {
  const auto refuse = [&](const std::string& what) {
    throw_failure(cat(setting.where, ": ", what));
  };
  if (setting.content.empty()) return;
  if (setting.content.size() > longest_sought) {
    refuse(cat("a token of ", setting.content.size(), " bytes; at most ", longest_sought,
               " are allowed; fetch the file again"));
  }
  AddedToken token;
  token.content = setting.content;
  // The tokenizers library counts ids itself. Where a file says another id, one of them is not the
  // model's.
  const TokenId known = vocabulary.id(token.content);
  const auto same = by_content_.find(token.content);
  const bool is_new = same == by_content_.end();
  if (!is_new && setting.only_if_new && !setting.id) return;
  if (known < 0 && is_new && setting.only_if_known) return;
  token.id = known >= 0 ? known
             : !is_new  ? tokens_[same->second].id
                        : static_cast<TokenId>(next_id++);
  if (setting.id && *setting.id != token.id) {
    refuse(cat("the added token ", quote(token.content), " has the id ", *setting.id, ", but ",
               known >= 0 ? "the vocabulary gives it " : "ids count on to ", token.id,
               "; correct one of them"));
  }
  if (!is_new && setting.only_if_new) return;
  if (const std::string_view piece = vocabulary.piece(token.id);
      !piece.empty() && piece != token.content) {
    refuse(cat("the added token ", quote(token.content), " has the id ", token.id,
               ", in the vocabulary that of ", quote(piece), "; correct one of them"));
  }
  token.single_word = setting.single_word;
  token.lstrip = setting.lstrip;
  token.rstrip = setting.rstrip;
  token.special = setting.special;
  token.normalized = setting.normalized;
  token.steers = leading_space(token.content) < token.content.size();
  token.normal = token.content;
  if (token.normalized) {
    NormalText text{token.content, false};
    normalize(normalizers, text, allowance);
    token.normal = std::move(text.text);
    if (token.normal.empty()) {
      refuse(cat(quote(token.content),
                 " is looked for as the normalizer leaves it, and nothing is left; set its "
                 "normalized to false"));
    }
    if (token.normal.size() > 4 * longest_sought) {
      refuse(cat(quote(token.content), " is looked for as the normalizer leaves it, ",
                 token.normal.size(), " bytes; fetch the file again"));
    }
  }
  if (is_new) {
    by_content_.emplace(token.content, tokens_.size());
    by_id_.emplace(token.id, tokens_.size());
    tokens_.push_back(std::move(token));
  } else {
    tokens_[same->second] = std::move(token);
  }
}

AddedTokens::Finder AddedTokens::finder(Pass pass) const {
  Finder out;
  out.starts.fill(false);
  std::vector<std::pair<std::string_view, std::int32_t>> texts;
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    const AddedToken& token = tokens_[i];
    const bool wanted = pass == Pass::given        ? !token.normalized
                        : pass == Pass::normalized ? token.normalized
                                                   : !token.normalized || token.steers;
    const std::string& text = pass == Pass::normalized ? token.normal : token.content;
    if (!wanted || text.empty()) continue;
    texts.emplace_back(text, static_cast<std::int32_t>(i));
    out.starts[static_cast<unsigned char>(text.front())] = true;
    out.empty = false;
  }
  out.trie = ByteTrie(std::move(texts));
  return out;
}

std::vector<TextStretch> AddedTokens::split(std::string_view text, Pass pass,
                                            const Allowed& allowed, std::string_view before) const {
  const Finder& finder = finders_[static_cast<std::size_t>(pass)];
  std::vector<TextStretch> out;
  SpaceRuns spaces(text);
  std::size_t done = 0;
  for (std::size_t at = 0; !finder.empty && at < text.size();) {
    if (!finder.starts[static_cast<unsigned char>(text[at])]) {
      ++at;
      continue;
    }
    const AddedToken* found = nullptr;
    std::size_t length = 0;
    finder.trie.prefixes(text.substr(at), [&](std::size_t bytes, std::int32_t index) {
      const AddedToken& token = tokens_[static_cast<std::size_t>(index)];
      if (!allowed(token, at, at + bytes)) return;
      found = &token;
      length = bytes;
    });
    if (found == nullptr) {
      ++at;
      continue;
    }
    std::size_t begin = at, end = at + length;
    at = end;
    if (found->single_word) {
      const bool after_word = begin > 0 ? word_borders().word_before(text, begin)
                                        : word_borders().word_before(before, before.size());
      if (after_word || word_borders().word_at(text, end)) continue;
    }
    if (found->lstrip) begin = std::max(spaces.begin_to(begin), done);
    if (found->rstrip) end = spaces.end_from(end);
    if (begin >= end) continue;  // white space that the token before took
    if (done < begin) out.push_back({done, begin, -1});
    out.push_back({begin, end, found->id});
    done = end;
  }
  if (done < text.size()) out.push_back({done, text.size(), -1});
  return out;
}

const AddedToken* AddedTokens::find(TokenId id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &tokens_[found->second];
}

TokenId AddedTokens::id(const std::string& content) const {
  const auto found = by_content_.find(content);
  return found == by_content_.end() ? -1 : tokens_[found->second].id;
}

}  // namespace coppice::tokenization
