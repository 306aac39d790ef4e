#include <algorithm>
#include <bit>
#include <cstddef>
#include <limits>

#include "kernels/logits.h"

namespace coppice {

namespace {

// Whether the mask allows any token.
bool mask_into(std::span<const float> logits, const TokenMask* mask, LogitsScratch& scratch) {
  if (mask == nullptr) {
    scratch.masked.assign(logits.begin(), logits.end());
    return true;
  }
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
  return any;
}

}  // namespace

std::span<const float> masked_logits(std::span<const float> logits, const TokenMask* mask,
                                     LogitsScratch& scratch, std::span<const TokenBias> bias) {
  if (mask == nullptr && bias.empty()) return logits;
  if (!mask_into(logits, mask, scratch)) return {};
  for (const TokenBias& of : bias) {
    const auto token = static_cast<std::size_t>(of.token);
    if (token < scratch.masked.size()) scratch.masked[token] += of.bias;
  }
  return scratch.masked;
}

}  // namespace coppice
