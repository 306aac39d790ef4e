#include "engine/text_stream.h"

#include <algorithm>

#include "base/utf8.h"

namespace coppice {

bool TextStream::push(std::string_view bytes) {
  const std::size_t before = bytes_.size();
  bytes_ += bytes;
  token_end_.push_back(bytes_.size());
  std::size_t first = std::string::npos;
  for (const std::string& stop : stops_) {
    // Only occurrences that end in the new bytes can be new.
    const std::size_t from = before >= stop.size() ? before - stop.size() + 1 : 0;
    first = std::min(first, bytes_.find(stop, std::max(from, released_)));
  }
  if (first == std::string::npos) return false;
  bytes_.resize(first);
  stopped_ = true;
  return true;
}

std::string TextStream::release(bool last) {
  std::size_t end = bytes_.size();
  if (!last && !stopped_) {
    std::size_t held = 0;
    for (const std::string& stop : stops_) {
      for (std::size_t n = std::min(stop.size() - 1, bytes_.size() - released_); n > held; --n) {
        if (bytes_.compare(bytes_.size() - n, n, stop, 0, n) == 0) {
          held = n;
          break;
        }
      }
    }
    end -= held;
    // A sequence that is cut off at the end waits for its continuation.
    for (std::size_t back = 1; back <= std::min<std::size_t>(3, end - released_); ++back) {
      if (utf8_sequence(std::string_view(bytes_).substr(end - back, back)) == -1) {
        end -= back;
        break;
      }
    }
  }
  const std::string text =
      to_valid_utf8(std::string_view(bytes_).substr(released_, end - released_));
  released_ = end;
  return text;
}

std::size_t TextStream::tokens_before_stop() const {
  if (!stopped_) return token_end_.size();
  return static_cast<std::size_t>(
      std::upper_bound(token_end_.begin(), token_end_.end(), bytes_.size()) - token_end_.begin());
}

std::string to_valid_utf8(std::string_view bytes) {
  std::string text;
  while (!bytes.empty()) {
    const int n = utf8_sequence(bytes);
    if (n > 0) {
      text += bytes.substr(0, static_cast<std::size_t>(n));
      bytes.remove_prefix(static_cast<std::size_t>(n));
    } else {
      text += "\xEF\xBF\xBD";
      bytes.remove_prefix(1);
    }
  }
  return text;
}

}  // namespace coppice
