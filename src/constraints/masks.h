// Masks of states: a walk of the machine over the vocabulary's trie, most of which is shared
// between states.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "constraints/constraint.h"
#include "constraints/expressions.h"

namespace coppice::constraints {

/// In an open string nearly all tokens may follow, and a walk that tries them takes milliseconds.
/// But what such tokens do inside the string depends neither on what comes behind it nor on how
/// many characters it may still have. So for a state "a repeat, then the rest" the walk is done
/// once for each repeat, without the rest (a Profile): it yields the tokens that stay inside, by
/// the repetitions that they use, and the places where a token goes on with a byte that begins no
/// repetition. There the rest is walked for each state: a few hundred places.
class Masks {
 public:
  Masks(const Vocabulary& vocabulary, Expressions& expressions)
      : vocabulary_(vocabulary), expressions_(expressions) {}

  std::shared_ptr<const Mask> make(Expr state);
  std::size_t memory() const { return profile_bytes_; }

 private:
  /// Where a token leaves a repeat: the node's byte begins no repetition, all before it is inside.
  struct Exit {
    std::uint32_t node;
    std::int32_t used;  ///< repetitions
  };
  struct Profile {
    bool has_plain = false;           ///< the vocabulary's plain tokens stay inside, too
    std::vector<std::uint32_t> all;   ///< bits of the other tokens that do
    std::vector<TokenId> inside;      ///< the same tokens, by the repetitions that they use
    std::vector<std::uint32_t> ends;  ///< by repetitions: end in `inside`
    std::vector<Exit> exits;          ///< by byte
    std::array<std::uint32_t, 257> exits_of{};  ///< by byte: first in `exits`
    std::size_t bytes() const;
  };
  /// A state that begins with a repeat, perhaps in the middle of a repetition.
  struct Head {
    Expr key = nothing;   ///< what a profile is of: what is left of the repetition, any number more
    Expr loop = nothing;  ///< any number of repetitions
    Expr once = nothing;
    Expr rest = empty;
    std::int32_t least = 0, most = no_limit;  ///< repetitions to come
  };

  void add(Expr state, std::vector<std::uint32_t>& bits, std::vector<Expr>& narrow);
  bool find_head(Expr state, Head& head);
  /// Whether repetitions cannot be told apart in two ways: a text of it is no beginning of another.
  bool is_prefix_code(Expr e);
  /// Bytes that a text may begin with.
  ByteSet begins(Expr e);
  /// Whether one repetition may be any character of the vocabulary's plain tokens.
  bool takes_plain(Expr once);
  /// Whether all plain tokens may follow, as in a string without a limit.
  bool is_open(Expr state);
  std::shared_ptr<const Profile> profile(const Head& head);
  /// Sets the bits of tokens that use so many repetitions at most; `ends` as in a Profile.
  void add_up_to(std::int32_t most, std::span<const TokenId> tokens,
                 std::span<const std::uint32_t> ends, std::span<const std::uint32_t> all,
                 std::vector<std::uint32_t>& bits);
  void add_profile(const Profile& profile, const Head& head, std::vector<std::uint32_t>& bits);
  /// Sets the bits of the tokens below a node that the state admits behind the node's bytes.
  void walk(std::uint32_t node, Expr state, std::vector<std::uint32_t>& bits);
  /// The same, remembered for a large subtree: states of one string often share what follows it.
  void walk_large(std::uint32_t node, Expr state, std::vector<std::uint32_t>& bits);

  const Vocabulary& vocabulary_;
  Expressions& expressions_;
  std::unordered_map<Expr, std::shared_ptr<const Profile>> profiles_;
  std::unordered_map<Expr, bool> prefix_codes_, plain_loops_, open_;
  std::size_t profile_bytes_ = 0;
  std::unordered_map<std::uint64_t, std::vector<std::uint32_t>> subtrees_;  ///< by node and state
  std::vector<const Expressions::Row*> rows_;                               ///< by depth, of a walk
};

}  // namespace coppice::constraints
