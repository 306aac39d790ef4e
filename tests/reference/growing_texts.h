// Texts that grow, are cut back, end and give their slots to new ones, as passes see them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "kernels/visible_kv.h"

namespace coppice::testing {

class GrowingTexts {
 public:
  GrowingTexts(std::int32_t texts, std::int32_t longest, std::uint32_t seed)
      : longest_(static_cast<std::size_t>(longest)),
        random_(seed),
        texts_(static_cast<std::size_t>(texts)) {
    for (KvSlot slot = 2 * texts * longest; slot > 0; --slot) free_.push_back(slot - 1);
    for (auto& text : texts_) grow(text, below(longest_));
  }

  /// Something happens to each text; their order is another.
  void step() {
    release(own_);
    for (auto& text : texts_) {
      switch (below(12)) {
        case 0:
          release(text);  // and a new one comes
          grow(text, below(longest_));
          break;
        case 1:
          cut(text, below(text.size() + 1));
          grow(text, below(5));
          break;
        case 2:
          if (!text.empty()) give_back(text, below(text.size()));  // as the draft skips tokens
          break;
        default:
          grow(text, below(5));
      }
      if (text.size() > longest_) cut(text, longest_ / 2);
    }
    if (below(3) == 0) std::shuffle(texts_.begin(), texts_.end(), random_);
    list();
  }

  /// Valid until the next step.
  std::span<const KvSegment> segments() const { return segments_; }
  std::int32_t rows() const { return static_cast<std::int32_t>(own_.size()); }
  /// What rows attend to, token by token.
  std::vector<VisibleKv> tokens() const {
    std::vector<VisibleKv> all;
    for (const KvSegment& segment : segments_) {
      std::int32_t position = segment.first_position;
      for (const KvSlot slot : segment.slots) {
        all.push_back({slot, segment.q_begin, segment.q_end, position++});
      }
    }
    return all;
  }

 private:
  using Slots = std::vector<KvSlot>;

  std::size_t below(std::size_t n) { return n == 0 ? 0 : random_() % n; }
  void grow(Slots& slots, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      slots.push_back(free_.back());
      free_.pop_back();
    }
  }
  void give_back(Slots& slots, std::size_t at) {
    if (slots[at] >= 0) free_.push_back(slots[at]);
    slots[at] = no_slot;
  }
  void cut(Slots& slots, std::size_t size) {
    for (std::size_t i = size; i < slots.size(); ++i) give_back(slots, i);
    slots.resize(std::min(slots.size(), size));
  }
  void release(Slots& slots) { cut(slots, 0); }

  // Each text has one to four rows of a chain in the pass.
  void list() {
    std::vector<std::int32_t> rows;
    for (std::size_t t = 0; t < texts_.size(); ++t) {
      rows.push_back(1 + static_cast<std::int32_t>(below(4)));
      grow(own_, static_cast<std::size_t>(rows.back()));
    }
    segments_.clear();
    std::int32_t first = 0;
    for (std::size_t t = 0; t < texts_.size(); ++t) {
      const std::int32_t end = first + rows[t];
      segments_.push_back({texts_[t], first, end, true, 0});
      auto position = static_cast<std::int32_t>(texts_[t].size());
      for (; first < end; ++first) {
        segments_.push_back(
            {std::span<const KvSlot>(own_).subspan(static_cast<std::size_t>(first), 1), first, end,
             false, position++});
      }
    }
  }

  const std::size_t longest_;
  std::mt19937 random_;
  std::vector<Slots> texts_;
  Slots own_;   ///< of the pass's rows
  Slots free_;  ///< the last is taken next
  std::vector<KvSegment> segments_;
};

}  // namespace coppice::testing
