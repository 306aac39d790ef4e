#include "models/tokenizer/allowance.h"

#include <algorithm>

#include "base/error.h"

namespace coppice::tokenization {
namespace {

// The longest real sequences have some ten stages, few of which lengthen a text; a character
// becomes eighteen at most, and a byte two.
constexpr std::size_t bytes_per_byte = 128, bytes_at_least = 4096;
// A greedy run steps back over itself a few times, and at a place some ten alternatives may fail.
// What is worse than that grows with the square of the text's length or faster.
constexpr std::size_t steps_per_byte = 256, steps_at_least = 1'000'000;

}  // namespace

Allowance::Allowance(std::size_t bytes, const std::string& file)
    : file_(file),
      given_(bytes),
      bytes_(bytes_per_byte * bytes + bytes_at_least),
      steps_(steps_per_byte * bytes + steps_at_least) {}

void Allowance::write(std::size_t bytes) {
  if (bytes > bytes_) {
    throw_failure(cat(file_, ": its stages would write more than ",
                      bytes_per_byte * given_ + bytes_at_least, " bytes for a text of ", given_,
                      "; fetch the file again"));
  }
  bytes_ -= bytes;
}

bool Allowance::step(std::size_t steps) {
  const bool fits = steps <= steps_;
  steps_ -= std::min(steps, steps_);
  return fits;
}

}  // namespace coppice::tokenization
