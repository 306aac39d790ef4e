#include "models/kv/pass_layout.h"

#include <algorithm>
#include <mutex>
#include <numeric>

namespace coppice {

void PassLayout::begin(Of model) {
  of_ = model;
  serial_ = 0;
  texts_.clear();
  paths_.clear();
  order_.clear();
  runs_.clear();
  slots_.clear();
  tokens_ = tokens_by_text_ = 0;
}

// --- order ------------------------------------------------------------------------------------

void PassLayout::add(const CacheRef& base, std::span<const KvSlot> tail, std::int32_t rows,
                     std::int32_t tail_begin) {
  texts_.push_back({&base, tail, rows, tail_begin});
}

std::size_t PassLayout::depth(std::int32_t text) const {
  const Text& of = texts_[to_size(text)];
  return of.path_end - of.path_begin;
}

CacheNode* PassLayout::node(std::int32_t text, std::size_t depth) const {
  return paths_[texts_[to_size(text)].path_begin + depth];
}

void PassLayout::find_paths() {
  std::int32_t index = 0;
  for (Text& text : texts_) {
    text.path_begin = paths_.size();
    for (CacheNode* node = text.base->node_;
         text.base->cache_ != nullptr && node->parent != nullptr; node = node->parent) {
      paths_.push_back(node);
      if (node->pass == serial_) continue;
      node->pass = serial_;
      node->first_text = index;
    }
    text.path_end = paths_.size();
    std::reverse(paths_.begin() + static_cast<std::ptrdiff_t>(text.path_begin), paths_.end());
    ++index;
  }
}

// By the first text that goes through what each is at: siblings in the order given.
bool PassLayout::comes_before(std::int32_t a, std::int32_t b) const {
  for (std::size_t d = 0;; ++d) {
    const bool a_ends = d == depth(a), b_ends = d == depth(b);
    if (!a_ends && !b_ends && node(a, d) == node(b, d)) continue;
    return (a_ends ? a : node(a, d)->first_text) < (b_ends ? b : node(b, d)->first_text);
  }
}

void PassLayout::arrange() {
  order_.resize(texts_.size());
  std::iota(order_.begin(), order_.end(), 0);
  PrefixCache* cache = nullptr;
  for (const Text& text : texts_) {
    if (text.base->length() > 0) cache = text.base->cache_;
  }
  std::unique_lock<std::mutex> lock;
  if (cache != nullptr) {
    lock = std::unique_lock(cache->mutex_);
    serial_ = ++cache->passes_;
    find_paths();
    std::stable_sort(order_.begin(), order_.end(),
                     [&](std::int32_t a, std::int32_t b) { return a != b && comes_before(a, b); });
  }
  std::int32_t row = 0;
  for (const std::int32_t text : order_) {
    texts_[to_size(text)].first_row = row;
    row += texts_[to_size(text)].rows;
  }
  lay(0, order_.size(), 0, 0);
  for (const Run& run : runs_) {
    tokens_ += static_cast<std::int64_t>(run.own.empty() ? run.size : run.own.size());
  }
}

// --- segments ---------------------------------------------------------------------------------

// Texts of the order, which have the first `depth` nodes of their paths in common; of these the
// ones from `pending` on are not listed yet.
void PassLayout::lay(std::size_t begin, std::size_t end, std::size_t depth, std::size_t pending) {
  while (begin < end) {
    const std::int32_t first = order_[begin];
    Text& text = texts_[to_size(first)];
    std::size_t past = begin + 1;
    CacheNode* const shared = depth < this->depth(first) ? node(first, depth) : nullptr;
    while (shared != nullptr && past < end && depth < this->depth(order_[past]) &&
           node(order_[past], depth) == shared) {
      ++past;
    }
    if (past == begin + 1) {
      // Nobody else is where it ends, or below.
      const std::size_t runs = runs_.size();
      if (text.runs_end == 0) text.runs_begin = runs;
      begin_run(text.first_row, text.first_row + text.rows);
      for (std::size_t d = pending; d < this->depth(first); ++d) {
        add_slots(slots_of(*node(first, d)), node(first, d)->begin);
      }
      add_own(text);
      text.runs_end = runs_.size();
    } else {
      // All of them may go on together. The first and the last say so for those between.
      const auto go_on = [&] {
        const std::int32_t last = order_[past - 1];
        return depth + 1 < this->depth(first) && depth + 1 < this->depth(last) &&
               node(first, depth + 1) == node(last, depth + 1);
      };
      const std::size_t depth_before = depth;
      while (go_on()) ++depth;
      std::int32_t tokens = 0;
      for (std::size_t d = pending; d <= depth; ++d) tokens += node(first, d)->size();
      const bool listed = is_listed_once(tokens);
      if (listed) {
        const Text& last = texts_[to_size(order_[past - 1])];
        if (text.runs_end == 0) text.runs_begin = runs_.size();
        begin_run(text.first_row, last.first_row + last.rows);
        for (std::size_t d = pending; d <= depth; ++d) {
          add_slots(slots_of(*node(first, d)), node(first, d)->begin);
        }
        text.runs_end = runs_.size();
      }
      lay(begin, past, depth + 1, listed ? depth + 1 : pending);
      depth = depth_before;
    }
    begin = past;
  }
}

void PassLayout::begin_run(std::int32_t q_begin, std::int32_t q_end) {
  runs_.push_back({q_begin, q_end, 0, {}, slots_.size(), 0});
}

// To the run that was begun last, or, behind a gap, to one more like it.
void PassLayout::add_slots(std::span<const KvSlot> slots, std::int32_t position) {
  if (slots.empty()) return;
  if (runs_.back().size > 0 &&
      runs_.back().position + static_cast<std::int32_t>(runs_.back().size) != position) {
    begin_run(runs_.back().q_begin, runs_.back().q_end);
  }
  if (runs_.back().size == 0) runs_.back().position = position;
  slots_.insert(slots_.end(), slots.begin(), slots.end());
  runs_.back().size += slots.size();
}

void PassLayout::add_own(const Text& text) {
  for (std::size_t d = 0; d < text.path_end - text.path_begin; ++d) {
    tokens_by_text_ += static_cast<std::int64_t>(slots_of(*paths_[text.path_begin + d]).size());
  }
  tokens_by_text_ += std::ssize(text.tail);
  if (runs_.back().size > 0) return add_slots(text.tail, text.tail_begin);
  runs_.back().position = text.tail_begin;
  runs_.back().own = text.tail;
}

void PassLayout::list_before(std::int32_t index, std::vector<KvSegment>& segments) const {
  const Text& text = texts_[to_size(index)];
  for (std::size_t r = text.runs_begin; r < text.runs_end; ++r) {
    const Run& run = runs_[r];
    const std::span<const KvSlot> slots =
        run.own.empty() ? std::span(slots_).subspan(run.begin, run.size) : run.own;
    segments.push_back({slots, run.q_begin, run.q_end, true, run.position});
  }
}

}  // namespace coppice
