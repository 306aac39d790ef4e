// Texts that are looked for at every place of another text.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace coppice::tokenization {

class ByteTrie {
 public:
  /// No text may be empty. Of equal texts the last one's value counts. Values are 0 or more.
  explicit ByteTrie(std::vector<std::pair<std::string_view, std::int32_t>> texts = {});

  /// Calls `found(bytes, value)` for each text that `text` begins with, shortest first.
  template <typename Found>
  void prefixes(std::string_view text, const Found& found) const {
    std::uint32_t node = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
      node = child(node, static_cast<unsigned char>(text[i]));
      if (node == 0) return;
      if (nodes_[node].value >= 0) found(i + 1, nodes_[node].value);
    }
  }

 private:
  struct Node {
    std::uint32_t first = 0;  ///< of its children, which stand side by side
    std::uint16_t children = 0;
    std::int32_t value = -1;
  };
  /// 0: none (nothing leads back to the root).
  std::uint32_t child(std::uint32_t node, unsigned char label) const;

  std::vector<Node> nodes_;
  std::vector<unsigned char> labels_;  ///< by node
};

}  // namespace coppice::tokenization
