#include <algorithm>
#include <bit>
#include <cstddef>
#include <limits>

#include "kernels/logits.h"

namespace coppice {

std::span<const float> masked_logits(std::span<const float> logits, const TokenMask* mask,
                                     LogitsScratch& scratch) {
  if (mask == nullptr) return logits;
  scratch.masked.assign(logits.size(), -std::numeric_limits<float>::infinity());
  const std::size_t words = std::min(mask->words.size(), (logits.size() + 31) / 32);
  bool any = false;
  for (std::size_t word = 0; word < words; ++word) {
    const std::size_t begin = word * 32, count = std::min<std::size_t>(32, logits.size() - begin);
    std::uint32_t bits = mask->words[word];
    if (count < 32) bits &= (std::uint32_t{1} << count) - 1;
    any |= bits != 0;
    if (bits == 0xffffffffu) {
      std::copy_n(logits.data() + begin, count, scratch.masked.data() + begin);
      continue;
    }
    for (; bits != 0; bits &= bits - 1) {
      const std::size_t token = begin + static_cast<std::size_t>(std::countr_zero(bits));
      scratch.masked[token] = logits[token];
    }
  }
  if (!any) return {};
  return scratch.masked;
}

}  // namespace coppice
