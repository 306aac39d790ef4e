// What a sequence owns.
#pragma once

#include <atomic>
#include <memory>

#include "coppice.h"
#include "engine/engine_impl.h"
#include "models/sequence_state.h"

namespace coppice {

struct __attribute__((visibility("hidden"))) Sequence::Impl {
  explicit Impl(Engine::Impl& owner)
      : engine(owner), state(owner.new_text()), idle_kv(owner.idle_kv, state) {}

  Engine::Impl& engine;
  SequenceState state;
  IdleKv::Place idle_kv;
  std::atomic<bool> generating = false;
};

class SequenceAccess {
 public:
  static std::shared_ptr<Sequence::Impl> impl(const Sequence& sequence) { return sequence.impl_; }
};

}  // namespace coppice
