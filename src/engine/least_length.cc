#include "engine/least_length.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace coppice {
namespace {

std::shared_ptr<const TokenMask> every_token(std::int64_t vocab_size) {
  auto mask = std::make_shared<TokenMask>();
  mask->words.assign(static_cast<std::size_t>((vocab_size + 31) / 32), ~std::uint32_t{0});
  if (const auto rest = vocab_size % 32; rest != 0) {
    mask->words.back() = (std::uint32_t{1} << rest) - 1;
  }
  mask->allowed = static_cast<std::int32_t>(vocab_size);
  return mask;
}

}  // namespace

LeastLength::LeastLength(const TokenRules* others, std::int64_t vocab_size,
                         std::vector<TokenId> ends, std::int32_t least)
    : others_(others), vocab_size_(vocab_size), ends_(std::move(ends)), least_(least) {}

std::int32_t LeastLength::start() const {
  return number_of({0, others_ == nullptr ? 0 : others_->start()});
}

std::int32_t LeastLength::advance(std::int32_t state, TokenId token) const {
  const State from = at(state);
  const std::int32_t inner = others_ == nullptr ? 0 : others_->advance(from.inner, token);
  if (inner < 0) return -1;
  if (from.tokens < least_ && !without_ends(from.inner)->has(token)) return -1;
  return number_of({std::min(from.tokens + 1, least_), inner});
}

std::shared_ptr<const TokenMask> LeastLength::mask(std::int32_t state) const {
  const State of = at(state);
  if (of.tokens < least_) return without_ends(of.inner);
  return others_ == nullptr ? nullptr : others_->mask(of.inner);
}

std::vector<TokenId> LeastLength::forced(std::int32_t state) const {
  return others_ == nullptr ? std::vector<TokenId>() : others_->forced(at(state).inner);
}

std::optional<std::int32_t> LeastLength::once_reached(std::int32_t state) const {
  const State of = at(state);
  return of.tokens >= least_ ? std::optional(of.inner) : std::nullopt;
}

LeastLength::State LeastLength::at(std::int32_t state) const {
  const std::lock_guard lock(mutex_);
  return states_[static_cast<std::size_t>(state)];
}

std::int32_t LeastLength::number_of(State state) const {
  const std::lock_guard lock(mutex_);
  const std::int64_t key = std::int64_t{state.inner} * (std::int64_t{least_} + 1) + state.tokens;
  const auto [at, fresh] = numbers_.emplace(key, static_cast<std::int32_t>(states_.size()));
  if (fresh) states_.push_back(state);
  return at->second;
}

std::shared_ptr<const TokenMask> LeastLength::without_ends(std::int32_t inner) const {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<const TokenMask>& known = masks_[inner];
  if (known != nullptr) return known;
  known = others_ == nullptr ? nullptr : others_->mask(inner);
  if (known == nullptr) known = every_token(vocab_size_);
  auto mask = std::make_shared<TokenMask>(*known);
  for (const TokenId end : ends_) {
    if (!mask->has(end)) continue;
    const auto t = static_cast<std::uint32_t>(end);
    mask->words[t / 32] &= ~(std::uint32_t{1} << (t % 32));
    --mask->allowed;
  }
  if (mask->allowed == 0) return known;
  mask->only = -1;
  for (std::size_t word = 0; word < mask->words.size() && mask->allowed == 1; ++word) {
    if (mask->words[word] == 0) continue;
    mask->only = static_cast<TokenId>(word * 32) + std::countr_zero(mask->words[word]);
  }
  return known = std::move(mask);
}

}  // namespace coppice
