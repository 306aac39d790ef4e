// The tree of shared KV against a map of strings, after every one of many random operations.
// COPPICE_RANDOM_OPERATIONS says how many (by default few enough for every run of the tests).
#include "models/kv/prefix_cache.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "engine/failing_allocation.h"
#include "planted/planted.h"
#include "reference/naive_device.h"
#include "reference/sanitized.h"

namespace coppice::testing {
namespace {

long operations() {
  const char* asked = std::getenv("COPPICE_RANDOM_OPERATIONS");
  return asked != nullptr ? std::atol(asked) : sanitized ? 10000 : 100000;
}

std::vector<TokenId> tokens_of(const std::string& text) { return {text.begin(), text.end()}; }

/// One entry for every token that has KV, by the text up to it.
class Oracle {
 public:
  struct Entry {
    std::uint64_t used = 0;
    KvSlot target = no_slot, draft = no_slot;
  };

  std::int32_t match(const std::string& text) const {
    std::size_t length = 0;
    while (length < text.size() && entries.contains(text.substr(0, length + 1))) ++length;
    return static_cast<std::int32_t>(length);
  }
  void touch(const std::string& text) {
    ++clock_;
    for (std::size_t n = 1; n <= text.size(); ++n) entries.at(text.substr(0, n)).used = clock_;
  }
  // The leaf used least recently that is not on the path of any of `held`.
  std::optional<std::string> victim(const std::vector<std::string>& held) const {
    std::optional<std::string> found;
    for (auto at = entries.begin(); at != entries.end(); ++at) {
      const std::string& text = at->first;
      const auto next = std::next(at);
      if (next != entries.end() && next->first.starts_with(text)) continue;
      if (std::any_of(held.begin(), held.end(),
                      [&](const std::string& ref) { return ref.starts_with(text); })) {
        continue;
      }
      if (!found || at->second.used < entries.at(*found).used) found = text;
    }
    return found;
  }
  std::int32_t drafted() const {
    return static_cast<std::int32_t>(std::count_if(
        entries.begin(), entries.end(), [](const auto& e) { return e.second.draft != no_slot; }));
  }
  std::vector<KvSlot> slots(const std::string& text, KvSlot Entry::*slot) const {
    std::vector<KvSlot> all;
    for (std::size_t n = 1; n <= text.size(); ++n) {
      const KvSlot one = entries.at(text.substr(0, n)).*slot;
      if (one == no_slot) break;
      all.push_back(one);
    }
    return all;
  }

  std::map<std::string, Entry> entries;

 private:
  std::uint64_t clock_ = 0;
};

class RandomCache {
 public:
  explicit RandomCache(std::uint32_t seed) : random_(seed) {}

  void next() {
    const std::size_t which = below(texts_.size());
    Text* const text = texts_[which].get();
    const std::size_t turn = below(9);
    if (text == nullptr) {
      texts_[which] = begin();
    } else if (turn < 3) {
      compute(*text);
    } else if (turn < 5) {
      append(*text);
    } else if (turn == 5) {
      fork(*text);
    } else if (turn == 6) {
      rewind(*text);
    } else if (turn == 7) {
      fill_draft(*text);
    } else {
      touch(*text);
      texts_[which] = nullptr;
    }
    if (below(6) == 0) evict();
  }

  void expect_right() {
    cache.validate();
    const PrefixCache::Counts counts = cache.counts();
    require(counts.shared.target == std::ssize(oracle_.entries), "tokens in the tree");
    require(counts.shared.draft == oracle_.drafted(), "tokens with the draft's KV");
    std::int32_t target = counts.shared.target, draft = counts.shared.draft;
    for (const auto& text : texts_) {
      if (text == nullptr) continue;
      target += text->target.size();
      const std::span<const KvSlot> own = text->draft.all();
      draft += text->draft.size() -
               static_cast<std::int32_t>(std::count(own.begin(), own.end(), no_slot));
    }
    require(target + target_pool.free_slots() == slots, "owned and free: the target's");
    require(draft + draft_pool.free_slots() == slots, "owned and free: the draft's");
    const Text* const text = texts_[below(texts_.size())].get();
    if (text != nullptr) {
      std::vector<KvSlot> all;
      text->ref.list_slots(true, all);
      require(all == oracle_.slots(text->before(), &Oracle::Entry::target), "slots of a path");
      all.clear();
      text->ref.list_slots(false, all);
      require(all == oracle_.slots(text->before(), &Oracle::Entry::draft), "the draft's slots");
      require(text->ref.draft_length() == std::ssize(all), "the draft's length");
    }
    const std::string asked = any_text();
    require(cache.match(tokens_of(asked)) == oracle_.match(asked), "the longest match");
  }

  void drop_all() {
    for (auto& text : texts_) text = nullptr;
    cache.evict({slots, slots});
    cache.validate();
    require(cache.counts().nodes == 0 && target_pool.free_slots() == slots &&
                draft_pool.free_slots() == slots,
            "all is free");
  }

  static constexpr std::int32_t slots = 60;
  const std::unique_ptr<Device> device = make_naive_device();
  const KvLayout layout{.layers = 1, .kv_heads = 1, .head_dim = 4, .page_size = 5, .pages = 12};
  KvPool target_pool{*device, layout}, draft_pool{*device, layout};
  PrefixCache cache{target_pool, &draft_pool};
  std::int64_t evicted = 0, matched = 0, folded = 0;

 private:
  struct Text {
    explicit Text(PrefixCache& cache)
        : ref(cache), target(&cache.target_pool()), draft(cache.draft_pool()) {}
    std::string text;
    CacheRef ref;
    KvSlots target, draft;  // behind the ref
    std::string before() const { return text.substr(0, static_cast<std::size_t>(ref.length())); }
  };

  static void require(bool right, const char* what) {
    if (!right) throw_failure(cat("oracle: ", what));
  }
  std::size_t below(std::size_t end) { return random_() % end; }
  std::string any_text() {
    std::string text(1 + below(14), 'a');
    for (char& letter : text) letter = static_cast<char>('a' + below(4) / 2);
    return text;
  }

  std::unique_ptr<Text> begin() {
    auto text = std::make_unique<Text>(cache);
    text->text = any_text();
    const auto most = static_cast<std::int32_t>(below(text->text.size() + 1));
    text->ref.advance(tokens_of(text->text), most);
    const std::int32_t found = std::min(most, oracle_.match(text->text));
    require(text->ref.length() == found, "where a text begins");
    matched += found;
    return text;
  }

  // Some tokens get KV, of both models or of one.
  void compute(Text& text) {
    const auto known = static_cast<std::size_t>(text.ref.length() + text.target.size());
    const auto count = static_cast<std::int32_t>(below(text.text.size() - known + 1));
    if (!text.target.take(count) || text.draft.size() + count > text.target.size()) return;
    if (below(3) == 0) return;
    const std::int32_t behind = text.target.size() - text.draft.size();
    if (behind > 0 && below(8) == 0) text.draft.skip_to(text.draft.size() + 1);
    static_cast<void>(text.draft.take(std::min(count, text.target.size() - text.draft.size())));
  }

  void append(Text& text) {
    const std::string before = text.before();
    const auto count = text.target.size();
    std::vector<KvSlot> target(text.target.all().begin(), text.target.all().end());
    std::vector<KvSlot> draft(text.draft.all().begin(), text.draft.all().end());
    const std::vector<TokenId> run =
        tokens_of(text.text.substr(before.size(), static_cast<std::size_t>(count)));
    require(text.ref.append(run, text.target, text.draft) == count, "all is taken over");
    require(text.ref.length() == std::ssize(before) + count, "where the text is then");
    require(text.target.size() == 0 && text.draft.size() == 0, "nothing is left behind");
    bool follows = std::ssize(oracle_.slots(before, &Oracle::Entry::draft)) == std::ssize(before);
    for (std::size_t i = 0; i < target.size(); ++i) {
      const auto [at, fresh] =
          oracle_.entries.try_emplace(text.text.substr(0, before.size() + i + 1));
      folded += fresh ? 0 : 1;
      if (fresh) at->second.target = target[i];
      const bool given = i < draft.size() && draft[i] != no_slot;
      follows = follows && (given || at->second.draft != no_slot);
      // A hole ends what is given.
      if (i < draft.size() && draft[i] == no_slot) draft.resize(i);
      if (follows && at->second.draft == no_slot) at->second.draft = draft[i];
    }
  }

  void fork(const Text& text) {
    std::unique_ptr<Text>& place = texts_[below(texts_.size())];
    if (place != nullptr) return;
    place = std::make_unique<Text>(cache);
    place->ref = text.ref.fork();
    place->text = text.before() + any_text();
  }

  void touch(const Text& text) { oracle_.touch(text.before()); }

  void rewind(Text& text) {
    const auto length = static_cast<std::int32_t>(below(text.text.size() + 1));
    if (length >= text.ref.length()) return;
    text.target.cut(0);
    text.draft.cut(0);
    touch(text);
    text.ref.rewind(length);
    require(text.ref.length() == length, "where a text goes back to");
    text.text = text.before() + any_text();
  }

  void fill_draft(Text& text) {
    const std::int32_t known = text.ref.draft_length(), missing = text.ref.length() - known;
    require((text.ref.draft_gap() == nullptr) == (missing == 0), "what the draft lacks");
    if (missing == 0) return;
    KvSlots fresh(&draft_pool);
    const auto count = 1 + static_cast<std::int32_t>(below(static_cast<std::size_t>(missing)));
    if (!fresh.take(count)) return;
    for (std::int32_t i = 0; i < count; ++i) {
      oracle_.entries.at(text.text.substr(0, static_cast<std::size_t>(known + i + 1))).draft =
          fresh.all()[static_cast<std::size_t>(i)];
    }
    text.ref.fill_draft(fresh, known, count);
  }

  void evict() {
    const PrefixCache::Slots wanted{static_cast<std::int32_t>(below(30)),
                                    static_cast<std::int32_t>(below(30))};
    std::vector<std::string> held;
    for (const auto& text : texts_) {
      if (text != nullptr) held.push_back(text->before());
    }
    std::int32_t target = target_pool.free_slots(), draft = draft_pool.free_slots();
    bool taken = false;
    while (target < wanted.target || draft < wanted.draft) {
      const std::optional<std::string> victim = oracle_.victim(held);
      if (!victim) break;
      const auto at = oracle_.entries.find(*victim);
      ++target;
      if (at->second.draft != no_slot) ++draft;
      oracle_.entries.erase(at);
      taken = true;
      ++evicted;
    }
    require(cache.evict(wanted) == taken, "whether something was taken");
    require(target_pool.free_slots() == target && draft_pool.free_slots() == draft,
            "what was taken");
  }

  std::mt19937 random_;
  Oracle oracle_;
  std::array<std::unique_ptr<Text>, 8> texts_;
};

// "" or what went wrong.
std::string first_error(RandomCache& cache, long count) {
  try {
    for (long i = 0; i < count; ++i) {
      cache.next();
      cache.expect_right();
    }
    cache.drop_all();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(PrefixCache, RandomOperationsAgreeWithAMapOfStrings) {
  RandomCache cache(5);
  EXPECT_EQ(first_error(cache, operations()), "");
  const long often = std::min(1000L, operations() / 50);
  EXPECT_GT(cache.evicted, often);
  EXPECT_GT(cache.matched, often);
  EXPECT_GT(cache.folded, often);
}

// Each in a process of its own: slots with two owners cannot be given back. (Compared as a whole:
// regular expressions do not match under the address sanitizer.)
TEST(PrefixCacheDeathTest, FaultsAreNoticed) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (const Fault fault :
       {Fault::split_shares_slot, Fault::fork_without_user, Fault::evicts_pinned,
        Fault::stale_split, Fault::stale_slots, Fault::draft_outlives_target}) {
    EXPECT_EXIT(
        {
          auto cache = std::make_unique<RandomCache>(5);
          const Planted planted(fault);
          const bool noticed = !first_error(*cache, 2000).empty();
          std::cerr << (noticed ? "noticed" : "not noticed") << std::endl;
          ::_exit(noticed ? 3 : 0);
        },
        ::testing::ExitedWithCode(3), ::testing::Eq("noticed\n"))
        << static_cast<int>(fault);
  }
}

// Eight threads with texts of their own in one tree: what a pass would read of a text is what it
// wrote, or another text of the same tokens.
TEST(PrefixCacheThreads, ShareOneTree) {
  const std::unique_ptr<Device> device = make_naive_device();
  const KvLayout layout{.layers = 1, .kv_heads = 1, .head_dim = 4, .page_size = 16, .pages = 64};
  KvPool target_pool(*device, layout), draft_pool(*device, layout);
  PrefixCache cache(target_pool, &draft_pool);
  const auto live = [&](std::uint32_t seed) {
    std::mt19937 random(seed);
    for (int round = 0; round < (sanitized ? 300 : 2000); ++round) {
      std::vector<TokenId> tokens(1 + random() % 20);
      for (TokenId& token : tokens) token = static_cast<TokenId>(random() % 4 / 2);
      CacheRef ref(cache);
      ref.advance(tokens, static_cast<std::int32_t>(tokens.size()));
      const std::int32_t known = ref.length();
      KvSlots target(&target_pool), draft(&draft_pool);
      const auto missing = static_cast<std::int32_t>(tokens.size()) - known;
      if (!target.take(missing) || !draft.take(static_cast<std::int32_t>(random() % 3))) continue;
      draft.cut(missing);
      EXPECT_EQ(
          ref.append(std::span(tokens).subspan(static_cast<std::size_t>(known)), target, draft),
          missing);
      CacheRef twin = ref.fork();
      twin.rewind(static_cast<std::int32_t>(random() % tokens.size()));
      const std::int32_t has = ref.draft_length();
      KvSlots fresh(&draft_pool);
      if (has < ref.length() && fresh.take(ref.length() - has)) {
        ref.fill_draft(fresh, has, ref.length() - has);
        EXPECT_EQ(ref.draft_length(), ref.length());
      }
      if (random() % 4 == 0) cache.evict({static_cast<std::int32_t>(random() % 1024), 0});
      std::vector<KvSlot> slots;
      ref.list_slots(true, slots);
      EXPECT_EQ(std::set<KvSlot>(slots.begin(), slots.end()).size(), tokens.size());
      EXPECT_EQ(cache.match(tokens), std::ssize(tokens));
    }
  };
  std::vector<std::thread> threads;
  for (std::uint32_t t = 0; t < 8; ++t) threads.emplace_back(live, t);
  for (std::thread& thread : threads) thread.join();
  cache.validate();
  cache.evict({1024, 1024});
  EXPECT_EQ(target_pool.free_slots(), 1024);
  EXPECT_EQ(draft_pool.free_slots(), 1024);
}

class PrefixCacheTest : public ::testing::Test {
 protected:
  static constexpr std::int32_t slots = 60;
  std::unique_ptr<Device> device_ = make_naive_device();
  KvLayout layout_{.layers = 1, .kv_heads = 1, .head_dim = 4, .page_size = 5, .pages = 12};
  KvPool target_{*device_, layout_}, draft_{*device_, layout_};
  PrefixCache cache_{target_, &draft_};

  // A reference at the end of `text`, whose KV it brings.
  CacheRef write(const std::string& text) {
    CacheRef ref(cache_);
    const std::vector<TokenId> tokens = tokens_of(text);
    ref.advance(tokens, static_cast<std::int32_t>(tokens.size()));
    KvSlots target(&target_), draft(&draft_);
    const auto known = static_cast<std::size_t>(ref.length());
    EXPECT_TRUE(target.take(static_cast<std::int32_t>(tokens.size() - known)));
    ref.append(std::span(tokens).subspan(known), target, draft);
    EXPECT_EQ(ref.length(), std::ssize(tokens));
    return ref;
  }
  std::int32_t match(const std::string& text) const { return cache_.match(tokens_of(text)); }
};

TEST_F(PrefixCacheTest, TextsThatBeginAlikeShareWhatTheyShare) {
  const CacheRef one = write("abcdef"), other = write("abcxyz");
  EXPECT_EQ(target_.free_slots(), slots - 9);
  EXPECT_EQ(cache_.counts().nodes, 3);
  EXPECT_EQ(match("abcde"), 5);
  EXPECT_EQ(match("abcxz"), 4);
  EXPECT_EQ(match("b"), 0);
  EXPECT_EQ(cache_.evictable(), 0);
}

TEST_F(PrefixCacheTest, ATextsEndIsTakenFirstAndWhatIsInUseNever) {
  const CacheRef pinned = write("abcd");
  { const CacheRef first = write("abcdefgh"), second = write("xyz"); }
  EXPECT_EQ(cache_.evictable(), 7);
  EXPECT_TRUE(cache_.evict({slots - 9, 0}));
  EXPECT_EQ(match("xyz"), 1) << "it ended before the other";
  EXPECT_EQ(match("abcdefgh"), 8);
  EXPECT_TRUE(cache_.evict({slots, 0}));
  EXPECT_EQ(match("abcdefgh"), 4);
  EXPECT_FALSE(cache_.evict({slots, 0}));
  EXPECT_EQ(target_.free_slots(), slots - 4);
}

TEST_F(PrefixCacheTest, AForkKeepsWhatItsOriginalLeaves) {
  CacheRef fork;
  {
    const CacheRef ref = write("abcd");
    fork = ref.fork();
    EXPECT_TRUE(fork.is_at(ref));
  }
  EXPECT_FALSE(cache_.evict({slots, 0}));
  fork.rewind(2);
  EXPECT_EQ(fork.length(), 2);
  EXPECT_EQ(match("abcd"), 4) << "what lies below stays";
  EXPECT_TRUE(cache_.evict({slots, 0}));
  EXPECT_EQ(match("abcd"), 2);
}

// A text's node grows in place; who comes back to its end goes on with it.
TEST_F(PrefixCacheTest, NodesAreNoMoreThanTexts) {
  std::string text = "ab";
  for (int turn = 0; turn < 10; ++turn) {
    const CacheRef ref = write(text);
    text += "ab";
    EXPECT_LE(cache_.counts().nodes, 2);
  }
  cache_.validate();
}

// Two texts of a pass compute the same tokens for the draft if another thread splits their node
// meanwhile. Each token has the KV that was computed of it.
TEST_F(PrefixCacheTest, WhatTheDraftHasByNowIsGivenBack) {
  CacheRef upper = write("abcd"), lower = write("abcdefgh");
  KvSlots of_upper(&draft_), of_lower(&draft_);
  ASSERT_TRUE(of_upper.take(4));
  ASSERT_TRUE(of_lower.take(8));
  const std::vector<KvSlot> first(of_upper.all().begin(), of_upper.all().end()),
      second(of_lower.all().begin(), of_lower.all().end());
  upper.fill_draft(of_upper, 0, 4);
  lower.fill_draft(of_lower, 0, 8);
  std::vector<KvSlot> found;
  lower.list_slots(false, found);
  std::vector<KvSlot> expected = first;
  expected.insert(expected.end(), second.begin() + 4, second.end());
  EXPECT_EQ(found, expected);
  EXPECT_EQ(draft_.free_slots(), slots - 8);
  cache_.validate();
}

TEST_F(PrefixCacheTest, WithoutATreeThereIsNothingToShare) {
  CacheRef none;
  none.advance(tokens_of("abc"), 3);
  EXPECT_EQ(none.length(), 0);
  EXPECT_EQ(none.fork().length(), 0);
  EXPECT_FALSE(none.is_at(none));
}

// Memory that runs out anywhere in an operation: nothing is lost, and nothing is owned twice.
TEST_F(PrefixCacheTest, AllocationsThatFailLoseNothing) {
  if (sanitized) GTEST_SKIP() << "sanitizers replace operator new";
  std::mt19937 random(11);
  const auto below = [&](std::size_t end) { return random() % end; };
  long failed = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<CacheRef> refs;
    for (int i = 0; i < 3; ++i) {
      std::vector<TokenId> tokens(1 + below(8));
      for (TokenId& token : tokens) token = static_cast<TokenId>(below(2));
      CacheRef ref(cache_);
      KvSlots target(&target_), draft(&draft_);
      const long before = static_cast<long>(below(8));
      allocations_left = before;
      ref.advance(tokens, static_cast<std::int32_t>(tokens.size()));
      allocations_left = -1;
      const auto known = static_cast<std::size_t>(ref.length());
      const auto missing = static_cast<std::int32_t>(tokens.size() - known);
      ASSERT_TRUE(target.take(missing));
      ASSERT_TRUE(draft.take(missing));
      allocations_left = static_cast<long>(below(8));
      const std::int32_t taken = ref.append(std::span(tokens).subspan(known), target, draft);
      allocations_left = -1;
      failed += taken < missing ? 1 : 0;
      ASSERT_EQ(target.size(), missing - taken);
      ASSERT_EQ(ref.length(), static_cast<std::int32_t>(known) + taken);
      allocations_left = static_cast<long>(below(4));
      if (below(3) == 0) ref.rewind(static_cast<std::int32_t>(below(4)));
      allocations_left = -1;
      refs.push_back(std::move(ref));
      cache_.validate();
    }
    refs.clear();
    cache_.evict({static_cast<std::int32_t>(below(slots + 1)), 0});
    cache_.validate();
    ASSERT_EQ(target_.free_slots() + cache_.counts().shared.target, slots);
    ASSERT_EQ(draft_.free_slots() + cache_.counts().shared.draft, slots);
  }
  EXPECT_GT(failed, 100);
}

}  // namespace
}  // namespace coppice::testing
