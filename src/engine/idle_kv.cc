#include "engine/idle_kv.h"

#include <algorithm>

namespace coppice {
namespace {

bool take(KvSlots& slots, const KvPool& pool, std::int32_t wanted) {
  bool taken = false;
  // Again and again: some of the draft's tokens have no slot.
  while (slots.size() > 0) {
    const std::int32_t lacking = wanted - pool.free_slots();
    if (lacking <= 0) break;
    slots.cut(std::max(0, slots.size() - lacking));
    taken = true;
  }
  return taken;
}

}  // namespace

void IdleKv::Place::enter() {
  const std::lock_guard lock(all_.mutex_);
  all_.idle_.splice(all_.idle_.end(), own_);
}

void IdleKv::Place::leave() {
  const std::lock_guard lock(all_.mutex_);
  if (own_.empty()) own_.splice(own_.end(), all_.idle_, place_);
}

void IdleKv::Place::cut(std::int32_t length) {
  const std::lock_guard lock(all_.mutex_);
  (*place_)->cut(length);
}

bool IdleKv::make_room(const Slots& wanted) {
  const std::lock_guard lock(mutex_);
  bool taken = false;
  for (SequenceState* const state : idle_) {
    taken |= take(state->target_slots, *target_.pool, wanted.target);
    if (draft_.pool) taken |= take(state->draft_slots, *draft_.pool, wanted.draft);
  }
  return taken;
}

std::int32_t IdleKv::target_slots() const {
  const std::lock_guard lock(mutex_);
  std::int32_t slots = 0;
  for (const SequenceState* const state : idle_) slots += state->target_slots.size();
  return slots;
}

}  // namespace coppice
