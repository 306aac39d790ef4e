#include "chat/budget.h"

#include "base/error.h"
#include "chat/value.h"

namespace coppice::chat {
namespace {

// A template of a real model takes less than a tenth of this for any conversation.
constexpr std::size_t least_steps = 2'000'000, least_mib = 64;
constexpr std::size_t steps_for_byte = 4, bytes_for_byte = 64;

}  // namespace

Budget::Budget(std::size_t input)
    : Budget(least_steps + input * steps_for_byte, (least_mib << 20) + input * bytes_for_byte) {}
Budget::Budget(std::size_t steps, std::size_t bytes)
    : all_steps_(steps),
      all_bytes_(bytes),
      looks_(steps * looks_in_step),
      bytes_(bytes),
      outer_(current_) {
  current_ = this;
}
Budget::~Budget() { current_ = outer_; }

void Budget::expect_bytes(std::size_t size, std::size_t times) {
  if (current_ != nullptr && size != 0 && times > current_->bytes_ / size) current_->no_bytes();
}

void Budget::no_steps() const {
  throw TemplateError(cat("takes more than ", all_steps_ / 1'000'000,
                          " million steps; the template or the messages are at fault"));
}

void Budget::no_bytes() const {
  throw TemplateError(cat("fills more than ", all_bytes_ >> 20,
                          " MiB of memory; the template or the messages are at fault"));
}

}  // namespace coppice::chat
