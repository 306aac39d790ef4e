// A text that several wrote, as one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "models/tokenizer/tokenizer.h"

namespace coppice::tokenization {

/// Text that parts make, and which of its bytes were typed.
struct JoinedText {
  explicit JoinedText(std::span<const TextPart> parts) {
    for (const TextPart& part : parts) {
      if (part.typed && !part.text.empty()) {
        typed.push_back({text.size(), text.size() + part.text.size()});
      }
      text += part.text;
    }
  }
  bool is_typed(std::size_t begin, std::size_t end) const {
    const auto after = std::partition_point(typed.begin(), typed.end(),
                                            [&](const Range& range) { return range.end <= begin; });
    return after != typed.end() && after->begin < end;
  }
  struct Range {
    std::size_t begin, end;
  };
  std::string text;
  std::vector<Range> typed;  ///< in order
};

}  // namespace coppice::tokenization
