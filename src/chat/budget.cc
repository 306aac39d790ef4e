#include "chat/budget.h"

#include "chat/value.h"

namespace coppice::chat {
namespace {

constexpr std::size_t most_steps = 2'000'000, most_bytes = std::size_t{64} << 20;
// Of each byte of the messages: as often may they be copied, and looked through.
constexpr std::size_t copies = 64, looks = 4 * 16;

thread_local Budget* running = nullptr;

}  // namespace

Budget::Budget(std::size_t given)
    : steps_(most_steps + looks * given / 16),
      bytes_(most_bytes + copies * given),
      outer_(running) {
  running = this;
}
Budget::~Budget() { running = outer_; }

void Budget::spend_steps(std::size_t count) {
  if (running == nullptr) return;
  if (count > running->steps_) {
    throw TemplateError(
        "takes more than 2 million steps; the template or the messages are at fault");
  }
  running->steps_ -= count;
}

void Budget::expect_bytes(std::size_t count) {
  if (running != nullptr && count > running->bytes_) {
    throw TemplateError(
        "makes more than 64 MiB of text; the template or the messages are at fault");
  }
}

void Budget::spend_bytes(std::size_t count) {
  if (running == nullptr) return;
  expect_bytes(count);
  running->bytes_ -= count;
}

}  // namespace coppice::chat
