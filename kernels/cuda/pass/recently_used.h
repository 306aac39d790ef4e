// A map of bounded size: what was not used for longest makes room.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

namespace coppice {

template <typename Key, typename Value>
class RecentlyUsed {
 public:
  /// At most so many entries, at least one.
  explicit RecentlyUsed(std::size_t most) : most_(most) {}

  std::size_t size() const { return entries_.size(); }
  bool full() const { return entries_.size() == most_; }
  /// Null if it is not there.
  Value* find(const Key& key) {
    const auto found = entries_.find(key);
    if (found == entries_.end()) return nullptr;
    found->second.used = ++now_;
    return &found->second.value;
  }
  /// Removes an entry from a full map.
  void make_room() {
    if (!full()) return;
    entries_.erase(std::min_element(
        entries_.begin(), entries_.end(),
        [](const auto& a, const auto& b) { return a.second.used < b.second.used; }));
  }
  /// What is not there; of a full map another entry goes.
  Value& add(const Key& key, Value value) {
    make_room();
    return entries_.emplace(key, Entry{std::move(value), ++now_}).first->second.value;
  }

 private:
  struct Entry {
    Value value;
    std::uint64_t used;
  };
  std::size_t most_;
  std::map<Key, Entry> entries_;
  std::uint64_t now_ = 0;
};

}  // namespace coppice
