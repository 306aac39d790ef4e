#include "chat/text.h"

#include <algorithm>

namespace coppice::chat {

Text::Text(std::string bytes, bool foreign) : bytes_(std::move(bytes)) {
  Budget::spend_bytes(bytes_.size());
  if (foreign) marks_.assign(bytes_.size(), '\1');
}

void Text::append(std::string_view more, bool foreign) {
  if (more.empty()) return;
  Budget::spend_bytes(more.size());
  if (foreign && marks_.empty()) marks_.assign(bytes_.size(), '\0');
  bytes_ += more;
  if (foreign || !marks_.empty()) marks_.append(more.size(), foreign ? '\1' : '\0');
}

void Text::append(const Text& more) { append(more, 0, more.size()); }

void Text::append(const Text& source, std::size_t from, std::size_t count) {
  if (from >= source.size()) return;
  count = std::min(count, source.size() - from);
  Budget::spend_bytes(count);
  if (!source.marks_.empty() && marks_.empty()) marks_.assign(bytes_.size(), '\0');
  bytes_.append(source.bytes_, from, count);
  if (!source.marks_.empty()) {
    marks_.append(source.marks_, from, count);
  } else if (!marks_.empty()) {
    marks_.append(count, '\0');
  }
}

Text Text::substr(std::size_t from, std::size_t count) const {
  Text part;
  part.append(*this, from, count);
  return part;
}

void Text::clear() {
  bytes_.clear();
  marks_.clear();
}

std::vector<Segment> Text::segments() const {
  std::vector<Segment> parts;
  for (std::size_t from = 0; from < size();) {
    const bool foreign = foreign_at(from);
    std::size_t end = size();
    if (!marks_.empty()) {
      end = std::min(end, marks_.find(foreign ? '\0' : '\1', from));
    }
    parts.push_back({view().substr(from, end - from), foreign});
    from = end;
  }
  return parts;
}

}  // namespace coppice::chat
