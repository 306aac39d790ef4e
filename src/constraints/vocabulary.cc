#include "constraints/vocabulary.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/utf8.h"
#include "models/tokenizer/tokenizer.h"

namespace coppice::constraints {
namespace {

// A mask has a bit for each token, so ids are bounded as the tokenizer's are.
constexpr std::size_t most_tokens = std::size_t{1} << 22;
// Longer tokens would make walks deep; none of a real vocabulary has more than 512 bytes.
constexpr std::size_t longest_token = 4096;

std::vector<std::string> text_of_pieces(const Tokenizer& tokenizer) {
  std::vector<std::string> bytes(static_cast<std::size_t>(std::max(0, tokenizer.pieces())));
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const auto token = static_cast<TokenId>(i);
    const std::string_view added = tokenizer.added_text(token);
    if (added.find_first_not_of(" \t\r\n") != added.npos) {
      bytes[i] = added_token_mark;
      bytes[i] += added;
      continue;
    }
    bytes[i] = tokenizer.bytes_of(token);
    if (bytes[i].find(added_token_mark) != std::string::npos) bytes[i].clear();
  }
  return bytes;
}

}  // namespace

Vocabulary::Vocabulary(std::span<const std::string> bytes, std::span<const TokenId> ends)
    : bytes_(bytes.begin(), bytes.end()), ends_(ends.begin(), ends.end()) {
  make_trie();
}

Vocabulary::Vocabulary(const Tokenizer& tokenizer, std::span<const TokenId> ends)
    : Vocabulary(text_of_pieces(tokenizer), ends) {
  spell_ = [&tokenizer](std::string_view text) {
    return tokenizer.encode_typed(text, Tokenizer::after_text);
  };
}

bool Vocabulary::is_end(TokenId token) const {
  return std::find(ends_.begin(), ends_.end(), token) != ends_.end();
}

void Vocabulary::make_trie() {
  if (bytes_.size() > most_tokens) {
    throw_failure(cat("a vocabulary of ", bytes_.size(), " tokens; at most ", most_tokens,
                      " can be constrained"));
  }
  for (const TokenId end : ends_) {
    if (end < 0 || end >= size()) {
      throw_usage(cat("end token ", end, " is not in the vocabulary of ", size(),
                      " tokens; name one that is"));
    }
    bytes_[static_cast<std::size_t>(end)].clear();
  }
  std::vector<TokenId> order;
  for (std::size_t i = 0; i < bytes_.size(); ++i) {
    if (bytes_[i].size() > longest_token) bytes_[i].clear();
    if (!bytes_[i].empty()) order.push_back(static_cast<TokenId>(i));
  }
  std::sort(order.begin(), order.end(), [&](TokenId a, TokenId b) {
    const int order_of_bytes = bytes(a).compare(bytes(b));
    return order_of_bytes != 0 ? order_of_bytes < 0 : a < b;
  });

  nodes_.push_back({});
  std::vector<std::uint32_t> open = {0};  // the nodes from the root to the last one
  const auto close_to = [&](std::size_t depth) {
    while (open.size() > depth + 1) {
      nodes_[open.back()].end = static_cast<std::uint32_t>(nodes_.size());
      open.pop_back();
    }
  };
  std::string_view last;
  for (const TokenId token : order) {
    const std::string_view text = bytes(token);
    const auto [differs, _] = std::mismatch(text.begin(), text.end(), last.begin(), last.end());
    close_to(static_cast<std::size_t>(differs - text.begin()));
    for (std::size_t depth = open.size(); depth <= text.size(); ++depth) {
      open.push_back(static_cast<std::uint32_t>(nodes_.size()));
      nodes_.push_back({0, static_cast<std::uint32_t>(tokens_.size()),
                        static_cast<std::uint16_t>(depth),
                        static_cast<unsigned char>(text[depth - 1])});
    }
    tokens_.push_back(token);
    deepest_ = std::max(deepest_, text.size());
    last = text;
  }
  close_to(0);
  nodes_[0].end = static_cast<std::uint32_t>(nodes_.size());
  nodes_.push_back({0, static_cast<std::uint32_t>(tokens_.size())});

  find_plain_tokens();
  has_all_bytes_ = true;
  for (int byte = 0; byte < 256; ++byte) {
    const char one = static_cast<char>(byte);
    has_all_bytes_ = has_all_bytes_ && (one == added_token_mark || has({&one, 1}));
  }
}

void Vocabulary::find_plain_tokens() {
  plain_bits_.assign(words(), 0);
  std::vector<std::vector<TokenId>> by_length;
  for (const TokenId token : tokens_) {
    std::string_view text = bytes(token);
    std::size_t characters = 0;
    for (; !text.empty(); ++characters) {
      const int length = utf8_sequence(text);
      const auto byte = static_cast<unsigned char>(text.front());
      if (length <= 0 || byte < 0x20 || byte == '"' || byte == '\\') break;
      text.remove_prefix(static_cast<std::size_t>(length));
    }
    if (!text.empty()) continue;
    by_length.resize(std::max(by_length.size(), characters + 1));
    by_length[characters].push_back(token);
    const auto t = static_cast<std::uint32_t>(token);
    plain_bits_[t / 32] |= 1u << (t % 32);
  }
  for (const auto& some : by_length) {
    plain_.insert(plain_.end(), some.begin(), some.end());
    plain_ends_.push_back(static_cast<std::uint32_t>(plain_.size()));
  }
  for (std::size_t i = nodes_.size() - 1; i > 1; --i) {
    Node& node = nodes_[i - 1];
    node.is_plain = true;
    for (auto t = node.first_token; t < nodes_[i].first_token; ++t) {
      node.is_plain = node.is_plain && is_plain(tokens_[t]);
    }
    for (std::uint32_t child = static_cast<std::uint32_t>(i); child < node.end;
         child = nodes_[child].end) {
      node.is_plain = node.is_plain && nodes_[child].is_plain;
    }
  }
}

std::uint32_t Vocabulary::find(std::string_view bytes) const {
  std::uint32_t node = 0;
  for (const char c : bytes) {
    std::uint32_t child = node + 1;
    while (child < nodes_[node].end && nodes_[child].byte != static_cast<unsigned char>(c)) {
      child = nodes_[child].end;
    }
    if (child >= nodes_[node].end) return 0;
    node = child;
  }
  return node;
}

bool Vocabulary::has(std::string_view bytes) const {
  const std::uint32_t node = find(bytes);
  return node != 0 && nodes_[node + 1].first_token > nodes_[node].first_token;
}

bool Vocabulary::has_longer(std::string_view bytes) const {
  const std::uint32_t node = find(bytes);
  return node != 0 && nodes_[node].end > node + 1;
}

bool Vocabulary::take_longest(std::string_view& bytes, std::vector<TokenId>& spelt) const {
  std::size_t length = std::min(bytes.size(), deepest_);
  while (length > 0 && !has(bytes.substr(0, length))) --length;
  if (length == 0) return false;
  spelt.push_back(tokens_[nodes_[find(bytes.substr(0, length))].first_token]);
  bytes.remove_prefix(length);
  return true;
}

std::vector<TokenId> Vocabulary::spell(std::string_view bytes) const {
  std::vector<TokenId> spelt;
  while (!bytes.empty()) {
    const std::size_t text = std::min(bytes.find(added_token_mark), bytes.size());
    if (spell_ && text > 0) {
      const std::vector<TokenId> some = spell_(bytes.substr(0, text));
      spelt.insert(spelt.end(), some.begin(), some.end());
      bytes.remove_prefix(text);
    } else if (!take_longest(bytes, spelt)) {
      break;
    }
  }
  return spelt;
}

}  // namespace coppice::constraints
