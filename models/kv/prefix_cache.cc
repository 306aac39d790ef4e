#include "models/kv/prefix_cache.h"

#include <algorithm>
#include <iterator>
#include <new>
#include <utility>

#include "base/error.h"

namespace coppice {
namespace {

std::int32_t length_of(std::span<const TokenId> tokens) {
  return static_cast<std::int32_t>(tokens.size());
}

// Tokens that both begin with.
std::int32_t common(std::span<const TokenId> a, std::span<const TokenId> b) {
  const std::size_t most = std::min(a.size(), b.size());
  return static_cast<std::int32_t>(
      std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(most), b.begin()).first -
      a.begin());
}

CacheNode* child_of(const CacheNode& node, std::span<const TokenId> tokens) {
  if (tokens.empty()) return nullptr;
  const auto found = node.children.find(tokens.front());
  return found == node.children.end() ? nullptr : found->second.get();
}

// What could fail, fails before anything is changed.
template <typename Body>
bool with_memory(const Body& body) noexcept {
  try {
    body();
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

}  // namespace

// --- a reference -------------------------------------------------------------------------------

CacheRef::CacheRef(PrefixCache& cache) noexcept : cache_(&cache), node_(&cache.root_) {
  const PrefixCache::Lock lock(cache.mutex_);
  cache.enter(node_);
}

CacheRef::CacheRef(CacheRef&& other) noexcept { *this = std::move(other); }

CacheRef& CacheRef::operator=(CacheRef&& other) noexcept {
  if (this == &other) return *this;
  leave();
  cache_ = std::exchange(other.cache_, nullptr);
  node_ = std::exchange(other.node_, nullptr);
  length_ = std::exchange(other.length_, 0);
  draft_whole_ = std::exchange(other.draft_whole_, false);
  return *this;
}

void CacheRef::leave() noexcept {
  if (cache_ == nullptr) return;
  const PrefixCache::Lock lock(cache_->mutex_);
  cache_->leave(node_);
  cache_ = nullptr;
}

CacheRef CacheRef::fork() const noexcept {
  if (cache_ == nullptr) return {};
  const PrefixCache::Lock lock(cache_->mutex_);
  cache_->enter(node_);
  CacheRef other(cache_, node_, length_);
  other.draft_whole_ = draft_whole_;
  return other;
}

void CacheRef::advance(std::span<const TokenId> tokens, std::int32_t most) noexcept {
  if (cache_ == nullptr || most <= length_) return;
  const PrefixCache::Lock lock(cache_->mutex_);
  const auto from = static_cast<std::size_t>(length_);
  cache_->move_ref(
      *this, *cache_->advance(node_, tokens.subspan(from, static_cast<std::size_t>(most) - from)));
}

std::int32_t CacheRef::append(std::span<const TokenId> tokens, KvSlots& target,
                              KvSlots& draft) noexcept {
  if (cache_ == nullptr) return 0;
  const PrefixCache::Lock lock(cache_->mutex_);
  return cache_->append(*this, tokens, target, draft);
}

void CacheRef::rewind(std::int32_t length) noexcept {
  if (cache_ == nullptr || length >= length_) return;
  const PrefixCache::Lock lock(cache_->mutex_);
  CacheNode* node = node_;
  while (node->begin > length) node = node->parent;
  // It ends at `length`, or the tokens from there on are its own.
  if (node->begin == length && node->parent != nullptr) node = node->parent;
  if (node->end() > length) {
    CacheNode* const upper = cache_->split(*node, length - node->begin);
    node = upper != nullptr ? upper : node->parent;
  }
  cache_->move_ref(*this, *node);
}

std::int32_t CacheRef::draft_length() const noexcept {
  if (draft_whole_ || cache_ == nullptr) return length_;
  const PrefixCache::Lock lock(cache_->mutex_);
  const CacheNode* node = node_;
  std::int32_t known = length_;
  for (; node != nullptr; node = node->parent) {
    if (!node->draft_is_whole()) known = node->begin + node->draft.size();
  }
  draft_whole_ = known == length_;
  return known;
}

void CacheRef::list_slots(bool of_target, std::vector<KvSlot>& slots) const {
  if (cache_ == nullptr) return;
  const PrefixCache::Lock lock(cache_->mutex_);
  const std::size_t before = slots.size();
  slots.resize(before + static_cast<std::size_t>(length_), no_slot);
  for (const CacheNode* node = node_; node != nullptr; node = node->parent) {
    const std::span<const KvSlot> own = (of_target ? node->target : node->draft).all();
    std::copy(own.begin(), own.end(),
              slots.begin() + static_cast<std::ptrdiff_t>(before) + node->begin);
  }
  while (slots.size() > before && slots.back() == no_slot) slots.pop_back();
}

const CacheNode* CacheRef::draft_gap() const noexcept {
  if (draft_whole_ || cache_ == nullptr) return nullptr;
  const PrefixCache::Lock lock(cache_->mutex_);
  const CacheNode* gap = nullptr;
  for (const CacheNode* node = node_; node != nullptr; node = node->parent) {
    if (!node->draft_is_whole()) gap = node;
  }
  return gap;
}

void CacheRef::fill_draft(KvSlots& slots, std::int32_t from, std::int32_t count) noexcept {
  const std::int32_t end = from + count;
  while (from < end && draft_gap() != nullptr) {
    const PrefixCache::Lock lock(cache_->mutex_);
    CacheNode* gap = nullptr;
    for (CacheNode* node = node_; node != nullptr; node = node->parent) {
      if (!node->draft_is_whole()) gap = node;
    }
    if (gap == nullptr) break;  // another thread has filled it meanwhile
    // Another text may have brought some of them since they were asked for.
    const std::int32_t known = gap->begin + gap->draft.size();
    if (from < known) {
      slots.drop_front(std::min(end, known) - from);
      from = std::min(end, known);
      continue;
    }
    const std::int32_t taken = std::min(end, gap->end()) - from;
    if (!with_memory([&] { gap->draft.make_room(taken); })) break;
    gap->draft.keep(slots, 0, taken);
    slots.drop_front(taken);
    cache_->counts_.shared.draft += taken;
    from += taken;
  }
  slots.drop_front(end - from);
}

// --- who uses what ----------------------------------------------------------------------------

PrefixCache::PrefixCache(KvPool& target, KvPool* draft)
    : target_(target), draft_(draft), root_(target, draft) {}

std::int32_t PrefixCache::own_refs(const CacheNode& node) const noexcept {
  std::int32_t refs = node.users;
  for (const auto& [token, child] : node.children) refs -= child->users;
  return refs;
}

// Adds a user to the node and its ancestors.
void PrefixCache::enter(CacheNode* node) noexcept {
  for (; node != nullptr; node = node->parent) {
    if (node->users++ > 0) continue;
    counts_.evictable.target -= node->target.size();
    counts_.evictable.draft -= node->draft.size();
    if (node->idle.empty()) node->idle.splice(node->idle.end(), idle_, node->place);
  }
}

void PrefixCache::leave(CacheNode* node) noexcept {
  ++clock_;
  CacheNode* const last = node;
  for (; node != nullptr; node = node->parent) {
    node->used = clock_;
    if (--node->users > 0) continue;
    counts_.evictable.target += node->target.size();
    counts_.evictable.draft += node->draft.size();
  }
  if (last->children.empty() && last->users == 0) make_idle(*last);
  for (node = last; node != nullptr;) join_with_child(*std::exchange(node, node->parent));
}

// Among those used before. What was used last is found at once, and so is what has become a leaf,
// as it was used when its child was.
void PrefixCache::make_idle(CacheNode& node) noexcept {
  if (node.parent == nullptr) return;
  auto at = idle_.end();
  if (!idle_.empty() && idle_.back()->used > node.used) {
    at = std::find_if(idle_.begin(), idle_.end(),
                      [&](const CacheNode* other) { return other->used > node.used; });
  }
  idle_.splice(at, node.idle);
}

// First where it goes, so that nothing on the way loses its last user.
void PrefixCache::move_ref(CacheRef& ref, CacheNode& to) noexcept {
  CacheNode* const from = ref.node_;
  if (from == &to) return;
  ref.node_ = &to;
  ref.length_ = to.end();
  ref.draft_whole_ = false;
  enter(&to);
  leave(from);
}

// --- the tree ---------------------------------------------------------------------------------

std::int32_t PrefixCache::match(std::span<const TokenId> tokens) const noexcept {
  const Lock lock(mutex_);
  const CacheNode* node = &root_;
  std::span<const TokenId> left = tokens;
  while (const CacheNode* const child = child_of(*node, left)) {
    const std::int32_t same = common(child->tokens, left);
    left = left.subspan(static_cast<std::size_t>(same));
    if (same < child->size()) break;
    node = child;
  }
  return length_of(tokens) - length_of(left);
}

// The end of the longest match.
CacheNode* PrefixCache::advance(CacheNode* from, std::span<const TokenId> tokens) noexcept {
  while (CacheNode* const child = child_of(*from, tokens)) {
    const std::int32_t same = common(child->tokens, tokens);
    if (same < child->size()) {
      CacheNode* const upper = split(*child, same);
      return upper != nullptr ? upper : from;
    }
    tokens = tokens.subspan(static_cast<std::size_t>(same));
    from = child;
  }
  return from;
}

std::int32_t PrefixCache::append(CacheRef& ref, std::span<const TokenId> tokens, KvSlots& target,
                                 KvSlots& draft) noexcept {
  std::span<const TokenId> left = tokens;
  draft.cut(draft.leading());  // what follows a hole was computed without what it stands for
  while (!left.empty()) {
    CacheNode& node = *ref.node_;
    if (CacheNode* child = child_of(node, left)) {
      const std::int32_t same = common(child->tokens, left);
      if (same < child->size()) child = split(*child, same);
      if (child == nullptr) break;
      fold(*child, target, draft);
      move_ref(ref, *child);
      left = left.subspan(static_cast<std::size_t>(same));
      continue;
    }
    const bool alone = node.parent != nullptr && node.users == 1 && node.children.empty();
    if (alone) {
      if (!grow(node, left, target, draft)) break;
      ref.length_ = node.end();
      ref.draft_whole_ = false;
    } else {
      CacheNode* const child = add_child(node, left, target, draft);
      if (child == nullptr) break;
      move_ref(ref, *child);
    }
    left = {};
  }
  return length_of(tokens) - length_of(left);
}

// What the node has already goes back; the draft's it may lack.
void PrefixCache::fold(CacheNode& node, KvSlots& target, KvSlots& draft) noexcept {
  const std::int32_t size = node.size();
  target.drop_front(size);
  const std::int32_t given = std::min(size, draft.size()), had = node.draft.size();
  const bool follows = node.parent->draft_is_whole() && given > had;
  if (follows && with_memory([&] { node.draft.make_room(given - had); })) {
    node.draft.keep(draft, had, given);
    counts_.shared.draft += given - had;
    if (node.users == 0) counts_.evictable.draft += given - had;
  }
  draft.drop_front(given);
}

// Appends tokens to a leaf that has one reference.
bool PrefixCache::grow(CacheNode& node, std::span<const TokenId> tokens, KvSlots& target,
                       KvSlots& draft) noexcept {
  const std::int32_t count = length_of(tokens), given = std::min(count, draft.size());
  const bool follows = node.draft_is_whole();
  const bool room = with_memory([&] {
    const std::size_t needed = node.tokens.size() + tokens.size();
    if (needed > node.tokens.capacity()) {
      node.tokens.reserve(std::max(needed, 2 * node.tokens.capacity()));
    }
    node.target.make_room(count);
    node.draft.make_room(follows ? given : 0);
  });
  if (!room) return false;
  node.tokens.insert(node.tokens.end(), tokens.begin(), tokens.end());
  node.target.keep(target, 0, count);
  target.drop_front(count);
  counts_.shared.target += count;
  if (follows) {
    node.draft.keep(draft, 0, given);
    counts_.shared.draft += given;
  }
  draft.drop_front(given);
  return true;
}

// Adds a child. Returns null if host memory runs out. The new child has no users yet.
CacheNode* PrefixCache::add_child(CacheNode& node, std::span<const TokenId> tokens, KvSlots& target,
                                  KvSlots& draft) noexcept {
  CacheNode* child = nullptr;
  if (!with_memory([&] {
        auto fresh = std::make_unique<CacheNode>(target_, draft_);
        fresh->tokens.reserve(tokens.size());
        fresh->target.make_room(length_of(tokens));
        fresh->draft.make_room(length_of(tokens));
        child = node.children.emplace(tokens.front(), std::move(fresh)).first->second.get();
      })) {
    return nullptr;
  }
  child->parent = &node;
  child->begin = node.end();
  child->used = node.used;
  ++counts_.nodes;
  child->users = 1;  // while it grows
  grow(*child, tokens, target, draft);
  if (!node.draft_is_whole()) {
    counts_.shared.draft -= child->draft.size();
    child->draft.cut(0);
  }
  child->users = 0;
  counts_.evictable.target += child->target.size();
  counts_.evictable.draft += child->draft.size();
  make_idle(*child);
  return child;
}

// Cuts a node in two. The lower part is the node itself, where refs and children stay; returns the
// upper one, null without memory.
CacheNode* PrefixCache::split(CacheNode& node, std::int32_t at) noexcept {
  std::unique_ptr<CacheNode> upper;
  const std::int32_t drafted = std::min(at, node.draft.size());
  if (!with_memory([&] {
        upper = std::make_unique<CacheNode>(target_, draft_);
        upper->tokens.assign(node.tokens.begin(), node.tokens.begin() + at);
        upper->target.make_room(at);
        upper->draft.make_room(drafted);
        upper->children.emplace(node.tokens[static_cast<std::size_t>(at)], nullptr);
      })) {
    return nullptr;
  }
  CacheNode* const result = upper.get();
  result->parent = node.parent;
  result->begin = node.begin;
  result->users = node.users;
  result->used = node.used;
  result->lacked = node.lacked;
  result->lacking_texts = node.lacking_texts;
  result->target.keep(node.target, 0, at);
  node.target.drop_front(at);
  result->draft.keep(node.draft, 0, drafted);
  node.draft.drop_front(drafted);
  node.tokens.erase(node.tokens.begin(), node.tokens.begin() + at);
  node.begin += at;
  node.parent = result;
  // The node's owner among its former siblings changes hands.
  std::unique_ptr<CacheNode>& among = result->parent->children.find(result->tokens.front())->second;
  std::unique_ptr<CacheNode>& below = result->children.begin()->second;
  below = std::exchange(among, std::move(upper));
  ++counts_.nodes;
  return result;
}

// A node that no reference ends at, and that has one child, which was last used together with it,
// becomes one with that: the child stays, where refs and children are. Not if it would lose the
// draft's KV, and not without memory.
void PrefixCache::join_with_child(CacheNode& node) noexcept {
  if (node.parent == nullptr || node.children.size() != 1) return;
  CacheNode& child = *node.children.begin()->second;
  if (child.users != node.users || child.used != node.used) return;
  if (child.draft.size() > 0 && !node.draft_is_whole()) return;
  if (!with_memory([&] {
        node.tokens.reserve(node.tokens.size() + child.tokens.size());
        node.target.make_room(child.target.size());
        node.draft.make_room(child.draft.size());
      })) {
    return;
  }
  node.tokens.insert(node.tokens.end(), child.tokens.begin(), child.tokens.end());
  node.target.keep(child.target, 0, child.target.size());
  node.draft.keep(child.draft, 0, child.draft.size());
  child.tokens.swap(node.tokens);
  child.target.swap(node.target);
  child.draft.swap(node.draft);
  // Holes now, of slots that are the child's.
  node.target.cut(0);
  node.draft.cut(0);
  child.begin = node.begin;
  child.parent = node.parent;
  std::unique_ptr<CacheNode>& among = node.parent->children.find(child.tokens.front())->second;
  std::unique_ptr<CacheNode> old = std::move(among);
  among = std::move(old->children.begin()->second);
  --counts_.nodes;
}

// --- short of slots ---------------------------------------------------------------------------

bool PrefixCache::evict(const Slots& wanted) noexcept {
  const Lock lock(mutex_);
  bool taken = false;
  const auto lacking = [&] {
    return std::max(wanted.target - target_.free_slots(),
                    draft_ == nullptr ? 0 : wanted.draft - draft_->free_slots());
  };
  while (!idle_.empty()) {
    const std::int32_t more = lacking();
    if (more <= 0) break;
    CacheNode& leaf = *idle_.front();
    cut_leaf(leaf, std::max(0, leaf.size() - more));
    taken = true;
  }
  return taken;
}

void PrefixCache::cut_leaf(CacheNode& leaf, std::int32_t size) noexcept {
  const std::int32_t target = leaf.target.size(), draft = leaf.draft.size();
  leaf.target.cut(size);
  leaf.draft.cut(size);
  counts_.evicted_tokens += leaf.size() - size;
  for (Slots* const slots : {&counts_.shared, &counts_.evictable}) {
    slots->target -= target - leaf.target.size();
    slots->draft -= draft - leaf.draft.size();
  }
  if (size > 0) return leaf.tokens.resize(static_cast<std::size_t>(size));
  CacheNode& parent = *leaf.parent;
  idle_.erase(leaf.place);
  --counts_.nodes;
  parent.children.erase(parent.children.find(leaf.tokens.front()));
  if (parent.children.empty() && parent.users == 0) make_idle(parent);
  join_with_child(parent);
}

std::int32_t PrefixCache::evictable() const noexcept {
  const Lock lock(mutex_);
  return counts_.evictable.target;
}

PrefixCache::Counts PrefixCache::counts() const noexcept {
  const Lock lock(mutex_);
  return counts_;
}

// --- invariants -------------------------------------------------------------------------------

void PrefixCache::validate() const {
  const Lock lock(mutex_);
  Counts found;
  std::int64_t idle = 0;
  Owned owned;
  validate(root_, found, idle, owned);
  const auto require = [](bool right, const char* what) {
    if (!right) throw_failure(cat("KV tree: ", what));
  };
  require(found.shared.target == counts_.shared.target, "the target's slots are miscounted");
  require(found.shared.draft == counts_.shared.draft, "the draft's slots are miscounted");
  require(found.evictable.target == counts_.evictable.target &&
              found.evictable.draft == counts_.evictable.draft,
          "slots that nobody uses are miscounted");
  require(found.nodes == counts_.nodes, "nodes are miscounted");
  require(idle == std::ssize(idle_), "a node that is no leaf, or has users, waits for eviction");
  require(std::is_sorted(idle_.begin(), idle_.end(),
                         [](const CacheNode* a, const CacheNode* b) { return a->used < b->used; }),
          "leaves are out of order");
}

void PrefixCache::validate(const CacheNode& node, Counts& found, std::int64_t& idle,
                           Owned& owned) const {
  const auto require = [&](bool right, const char* what) {
    if (!right)
      throw_failure(cat("KV tree: node at ", node.begin, " of ", node.size(), ": ", what));
  };
  const bool is_root = node.parent == nullptr;
  require(is_root == node.tokens.empty(), "only the root has no tokens");
  require(node.target.size() == node.size() && node.target.leading() == node.size(),
          "a token lacks the target's slot");
  require(node.draft.size() <= node.size() && node.draft.leading() == node.draft.size(),
          "the draft's slots are not those of its first tokens");
  require(own_refs(node) >= 0, "fewer users than its children");
  const bool waits = node.children.empty() && node.users == 0 && !is_root;
  require(node.idle.empty() == waits,
          "a leaf without users does not wait for eviction, or another");
  if (!is_root) {
    require(node.begin == node.parent->end(), "it does not follow its parent");
    require(node.draft.size() == 0 || node.parent->draft_is_whole(),
            "it has the draft's KV, its parent lacks some");
    ++found.nodes;
  }
  for (const KvSlots* const slots : {&node.target, &node.draft}) {
    for (const KvSlot slot : slots->all()) {
      require(owned.emplace(slots == &node.target, slot).second, "a slot has another owner, too");
    }
  }
  found.shared.target += node.target.size();
  found.shared.draft += node.draft.size();
  if (node.users == 0) {
    found.evictable.target += node.target.size();
    found.evictable.draft += node.draft.size();
  }
  idle += waits ? 1 : 0;
  for (const auto& [token, child] : node.children) {
    require(child != nullptr && child->parent == &node, "a child has another parent");
    require(child->tokens.front() == token, "a child goes by another token");
    require(child->used <= node.used, "a child was used later");
    validate(*child, found, idle, owned);
  }
}

}  // namespace coppice
