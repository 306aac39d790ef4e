#include "engine/text_stream.h"

#include <algorithm>

#include "base/utf8.h"

namespace coppice {

bool TextStream::push(std::string_view bytes, std::string_view hidden) {
  const std::size_t before = spelt_.size();
  shown_ += bytes;
  spelt_ += bytes.empty() ? hidden : bytes;
  ends_.push_back({shown_.size(), spelt_.size()});
  std::size_t first = std::string::npos;
  for (const std::string& stop : stops_) {
    // Only occurrences that end in the new bytes can be new.
    const std::size_t from = before >= stop.size() ? before - stop.size() + 1 : 0;
    first = std::min(first, spelt_.find(stop, std::max(from, clear_)));
  }
  if (first == std::string::npos) return false;
  shown_.resize(shown_within(first));
  spelt_.resize(first);
  stopped_ = true;
  return true;
}

std::string TextStream::release(bool last) {
  std::size_t end = shown_.size();
  if (!last && !stopped_) {
    std::size_t held = 0;
    for (const std::string& stop : stops_) {
      for (std::size_t n = std::min(stop.size() - 1, spelt_.size() - clear_); n > held; --n) {
        if (spelt_.compare(spelt_.size() - n, n, stop, 0, n) == 0) {
          held = n;
          break;
        }
      }
    }
    clear_ = spelt_.size() - held;
    end = shown_within(clear_);
    // A sequence that is cut off at the end waits for its continuation.
    for (std::size_t back = 1; back <= std::min<std::size_t>(3, end - released_); ++back) {
      if (utf8_sequence(std::string_view(shown_).substr(end - back, back)) == -1) {
        end -= back;
        break;
      }
    }
  }
  const std::string text =
      to_valid_utf8(std::string_view(shown_).substr(released_, end - released_));
  released_ = end;
  return text;
}

std::size_t TextStream::tokens_before_stop() const {
  return stopped_ ? tokens_within(spelt_.size()) : ends_.size();
}

std::size_t TextStream::tokens_within(std::size_t spelt) const {
  const auto after =
      std::upper_bound(ends_.begin(), ends_.end(), spelt,
                       [](std::size_t bytes, const End& end) { return bytes < end.spelt; });
  return static_cast<std::size_t>(after - ends_.begin());
}

std::size_t TextStream::shown_within(std::size_t spelt) const {
  const std::size_t whole = tokens_within(spelt);
  const End before = whole > 0 ? ends_[whole - 1] : End{0, 0};
  const std::size_t most = whole < ends_.size() ? ends_[whole].shown : before.shown;
  return std::min(before.shown + (spelt - before.spelt), most);
}

}  // namespace coppice
