#include "models/tokenizer/byte_trie.h"

#include <algorithm>

namespace coppice::tokenization {

ByteTrie::ByteTrie(std::vector<std::pair<std::string_view, std::int32_t>> texts) {
  std::stable_sort(texts.begin(), texts.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  // Each node stands for the texts [begin, end) that share their first `depth` bytes.
  struct Range {
    std::size_t begin, end, depth;
  };
  std::vector<Range> ranges = {{0, texts.size(), 0}};
  nodes_.push_back({});
  labels_.push_back(0);
  for (std::size_t node = 0; node < ranges.size(); ++node) {
    auto [begin, end, depth] = ranges[node];
    for (; begin < end && texts[begin].first.size() == depth; ++begin) {
      nodes_[node].value = texts[begin].second;
    }
    nodes_[node].first = static_cast<std::uint32_t>(nodes_.size());
    while (begin < end) {
      const auto label = static_cast<unsigned char>(texts[begin].first[depth]);
      std::size_t next = begin;
      while (next < end && static_cast<unsigned char>(texts[next].first[depth]) == label) ++next;
      ++nodes_[node].children;
      nodes_.push_back({});
      labels_.push_back(label);
      ranges.push_back({begin, next, depth + 1});
      begin = next;
    }
  }
}

std::uint32_t ByteTrie::child(std::uint32_t node, unsigned char label) const {
  const Node& parent = nodes_[node];
  const auto first = labels_.begin() + parent.first;
  const auto found = std::lower_bound(first, first + parent.children, label);
  if (found == first + parent.children || *found != label) return 0;
  return static_cast<std::uint32_t>(found - labels_.begin());
}

}  // namespace coppice::tokenization
