#include "models/draft_gaps.h"

#include <algorithm>

namespace coppice {

std::int32_t DraftGaps::own(const SequenceState& text, std::int32_t end) noexcept {
  return std::max(0, end - (text.fills_draft() ? text.base.length() : text.draft_kv()));
}

std::int32_t DraftGaps::add(const SequenceState& text, std::int32_t end) noexcept {
  std::int32_t tokens = own(text, end);
  if (!text.fills_draft()) return tokens;
  PrefixCache& cache = *text.base.cache_;
  const PrefixCache::Lock lock(cache.mutex_);
  if (serial_ == 0) serial_ = ++cache.passes_;
  for (CacheNode* node = text.base.node_; node != nullptr; node = node->parent) {
    if (node->lacked != serial_) {
      node->lacked = serial_;
      node->lacking_texts = 0;
      tokens += node->size() - node->draft.size();
    }
    ++node->lacking_texts;
  }
  return tokens;
}

double DraftGaps::share(const SequenceState& text, std::int32_t end) const noexcept {
  double tokens = own(text, end);
  if (!text.fills_draft()) return tokens;
  const PrefixCache::Lock lock(text.base.cache_->mutex_);
  for (const CacheNode* node = text.base.node_; node != nullptr; node = node->parent) {
    const std::int32_t texts = node->lacked == serial_ ? node->lacking_texts : 1;
    tokens += static_cast<double>(node->size() - node->draft.size()) / texts;
  }
  return tokens;
}

}  // namespace coppice
