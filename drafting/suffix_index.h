// Where the end of a text occurred before, and what followed there.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/types.h"

namespace coppice {

/// A suffix automaton (Blumer et al., 1985) over a text that grows token by token: of any sequence
/// of tokens it knows the longest suffix that the text holds, and what followed it. Appending takes
/// constant time on average; a text of n tokens takes at most 2 n states and 3 n transitions, about
/// 300 bytes a token. Of more than `most` tokens the older half is forgotten.
class SuffixIndex {
 public:
  explicit SuffixIndex(std::int32_t most = 1 << 17);

  /// A token below 0 separates texts: nothing is found across it.
  void append(TokenId token);
  /// Forgets all tokens, which takes no memory. To be done, too, if append() threw.
  void clear();
  std::int32_t size() const { return static_cast<std::int32_t>(text_.size()); }
  /// The tokens that it holds: the last ones appended.
  std::span<const TokenId> tokens() const { return text_; }

  /// The longest suffix of some tokens that occurs in the text.
  struct Match {
    std::int32_t state = 0;
    std::int32_t length = 0;  ///< in tokens; 0: none
  };
  /// Finds where the end of the text itself occurred before.
  Match end() const;
  /// Extends a match by one more token.
  Match then(Match match, TokenId token) const;

  /// What followed, most often first; of those that came equally often, the last one first.
  struct Follower {
    TokenId token = -1;
    std::int32_t count = 0;
    std::int32_t last = -1;  ///< place in the text where it last did
  };
  /// Followers of a match that are kept; the rarest is given up for a new one.
  static constexpr std::size_t most_followers = 4;
  std::span<const Follower> after(Match match) const;

 private:
  struct State {
    std::int32_t length = 0;  ///< of its longest string
    std::int32_t link = -1;   ///< state of the longest suffix that occurs elsewhere, too
    std::int32_t edge = -1;   ///< its last transition, in edges_
    std::array<Follower, most_followers> follower;
  };

  static std::uint64_t key(std::int32_t state, TokenId token) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(state)) << 32 |
           static_cast<std::uint32_t>(token);
  }
  std::int32_t go(std::int32_t state, TokenId token) const;
  void connect(std::int32_t state, TokenId token, std::int32_t to);
  std::int32_t split(std::int32_t state, std::int32_t from, TokenId token);
  void note(State& state, TokenId token) const;
  void extend(TokenId token);

  std::int32_t most_;
  std::vector<TokenId> text_;
  std::vector<State> states_;
  struct Edge {
    TokenId token;
    std::int32_t before;  ///< the same state's edge before it
  };
  std::vector<Edge> edges_;
  std::unordered_map<std::uint64_t, std::int32_t> next_;  ///< by state and token
  std::int32_t last_ = 0;                                 ///< state of the whole text
};

}  // namespace coppice
