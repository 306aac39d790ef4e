// Prefixes that stay in memory, and what is there beside them.
#include <limits>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "base/host_memory.h"
#include "engine/decode.h"
#include "engine/open_sequence.h"
#include "engine/sequence_impl.h"

namespace coppice {

struct __attribute__((visibility("hidden"))) Prefix::Impl {
  Engine::Impl& engine;
  std::vector<TokenId> tokens;
  CacheRef pin;
};

namespace {

// The target computes it in the passes of a sequence that ends after its first token, beside
// others.
std::unique_ptr<Prefix::Impl> computed(Engine::Impl& engine, std::span<const TokenId> tokens) {
  GenerateOptions one_token;
  one_token.max_new_tokens = 1;
  one_token.ignore_eos = true;
  one_token.speculation = Plain{};
  const auto length = static_cast<std::int32_t>(tokens.size());
  SequenceState state = engine.new_shared_state();
  engine.append_prompt(state, tokens);
  // Until this thread goes on, others that lack memory may take what the ended sequence had: again.
  FinishReason reason;
  do {
    state.cut(length);
    reason = decode(engine, state, one_token).finish_reason;
  } while (state.target_kv() < length && reason != FinishReason::memory);
  if (state.target_kv() < length) {
    throw_failure(
        cat("prefix: too few KV slots for its ", length, " tokens; raise kv_tokens (--kv-tokens)"));
  }
  state.share(length);
  if (state.base.length() < length) {
    throw HostMemoryError("prefix: the host's memory ran out; free memory");
  }
  if (engine.draft_runner != nullptr &&
      state.largest_token < engine.draft.model->config().vocab_size) {
    const std::lock_guard lock(engine.mutex);
    const DeviceScope scope(*engine.device);
    engine.cache->evict({0, length});
    DraftPrompt prompt{&state};
    // Without slots the draft catches up later.
    static_cast<void>(engine.draft_runner->prefill(prompt));
  }
  return std::make_unique<Prefix::Impl>(
      Prefix::Impl{engine, {tokens.begin(), tokens.end()}, std::move(state.base)});
}

}  // namespace

Prefix::Prefix(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Prefix::Prefix(Prefix&&) noexcept = default;
Prefix& Prefix::operator=(Prefix&&) noexcept = default;
Prefix::~Prefix() = default;

std::span<const TokenId> Prefix::tokens() const { return impl_->tokens; }

Sequence Prefix::begin() const {
  return in_words("begin", [&] {
    auto sequence = std::make_shared<Sequence::Impl>(impl_->engine, true);
    impl_->engine.append_prompt(sequence->state, impl_->tokens);
    return Sequence(std::move(sequence));
  });
}

Prefix Engine::prefix(std::string_view text, bool add_bos) {
  return prefix(in_words("prefix", [&] {
    impl_->check_bytes(text.size(), 0);
    return impl_->encode(text, add_bos);
  }));
}

Prefix Engine::prefix(std::span<const TokenId> tokens) {
  return in_words("prefix", [&] { return Prefix(computed(*impl_, tokens)); });
}

CacheStatistics Engine::cache() const {
  const PrefixCache::Counts counts = impl_->cache->counts();
  CacheStatistics s;
  const auto slots = [](const KvPool* pool) {
    return pool == nullptr ? 0 : pool->layout().slots();
  };
  const auto free = [](const KvPool* pool) { return pool == nullptr ? 0 : pool->free_slots(); };
  s.target_slots = slots(impl_->target.pool.get());
  s.draft_slots = slots(impl_->draft.pool.get());
  s.target_free = free(impl_->target.pool.get());
  s.draft_free = free(impl_->draft.pool.get());
  s.target_shared = counts.shared.target;
  s.draft_shared = counts.shared.draft;
  s.evictable = counts.evictable.target;
  s.nodes = counts.nodes;
  s.prompt_tokens = impl_->prompt_tokens;
  s.cached_tokens = impl_->cached_tokens;
  s.cached_draft_tokens = impl_->cached_draft_tokens;
  s.evicted_tokens = counts.evicted_tokens;
  const TargetRunner::TokensRead read = impl_->target_runner->tokens_read();
  s.read_by_text = read.by_text;
  s.read_by_tree = read.by_tree;
  return s;
}

void Engine::drop_cache() {
  constexpr std::int32_t all = std::numeric_limits<std::int32_t>::max();
  impl_->cache->evict({all, 0});
}

}  // namespace coppice
