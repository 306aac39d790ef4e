#include "server/api/chat_choice.h"

#include <algorithm>
#include <cstddef>

namespace coppice::server {

std::string SpelledText::feed(std::string_view text, std::span<const TokenId> tokens) {
  for (const TokenId token : tokens) tokens_.push_back(backend_.token(token));
  std::string spelled;
  std::size_t done = 0;
  for (; done < tokens_.size(); ++done) {
    const TokenText& token = tokens_[done];
    if (shown_ == 0) starts_.push_back(spelled_ + spelled.size());
    if (token.special) {
      spelled += token.bytes;
      continue;
    }
    const std::string_view rest = std::string_view(token.bytes).substr(shown_);
    const std::size_t length = std::min(rest.size(), text.size());
    // Bytes that are no character are shown as another one: then only the order is known.
    if (text.substr(0, length) != rest.substr(0, length)) {
      spelled += text;
      text = {};
      shown_ = 0;
      continue;
    }
    spelled += text.substr(0, length);
    text.remove_prefix(length);
    if (length < rest.size()) {
      shown_ += length;
      if (shown_ == 0) starts_.pop_back();  // it begins later
      break;
    }
    shown_ = 0;
  }
  tokens_.erase(tokens_.begin(), tokens_.begin() + static_cast<std::ptrdiff_t>(done));
  spelled += text;
  spelled_ += spelled.size();
  return spelled;
}

std::int64_t SpelledText::tokens_within(std::size_t bytes) const {
  return std::lower_bound(starts_.begin(), starts_.end(), bytes) - starts_.begin();
}

}  // namespace coppice::server
