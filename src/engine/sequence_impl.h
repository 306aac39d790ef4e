// What a sequence owns.
#pragma once

#include <atomic>
#include <memory>

#include "coppice.h"
#include "drafting/lookup.h"
#include "engine/engine_impl.h"
#include "models/sequence_state.h"

namespace coppice {

struct __attribute__((visibility("hidden"))) Sequence::Impl {
  /// `shares`: begins with what the tree has, and leaves its KV to the tree between its uses.
  Impl(Engine::Impl& owner, bool shares)
      : engine(owner), state(shares ? owner.new_shared_state() : owner.new_state()) {}
  explicit Impl(Engine::Impl& owner) : Impl(owner, owner.options.prefix_cache) {}

  Engine::Impl& engine;
  SequenceState state;  ///< without KV while it is in no call
  TextIndex index;      ///< of its tokens, as far as lookup has asked for it; a fork makes its own
  std::atomic<bool> generating = false;
};

class SequenceAccess {
 public:
  static std::shared_ptr<Sequence::Impl> impl(const Sequence& sequence) { return sequence.impl_; }
};

}  // namespace coppice
