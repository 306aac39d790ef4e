// What a text may be, as a set of texts: which tokens may follow it is asked token by token.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/token_id.h"
#include "base/token_rules.h"
#include "constraints/language.h"
#include "constraints/vocabulary.h"

namespace coppice::constraints {

using Mask = TokenMask;

/// A language over bytes, and its tokens in one vocabulary. Built once, then shared between texts
/// and threads: all functions may be called from several threads at once.
///
/// A text's state is an int. States are numbered as they are met, and mean the same to all texts of
/// one constraint for as long as it lives; equal states have equal futures, but not the other way
/// around.
///
/// Throws Error(failure) where a text reaches a state
/// that would take more time or memory than a constraint may (see limits.h).
class Constraint final : public TokenRules {
 public:
  using State = std::int32_t;
  /// Of a text that left the language. It is no argument of any function but accepting().
  static constexpr State nowhere = -1;

  Constraint(std::shared_ptr<const Vocabulary> vocabulary,
             const std::shared_ptr<const Language>& language);
  ~Constraint() override;
  Constraint(const Constraint&) = delete;
  Constraint& operator=(const Constraint&) = delete;

  const Vocabulary& vocabulary() const;

  /// Of the empty text.
  State start() const override;
  /// Behind one more token; `nowhere` if no text of the language goes on so. Behind an end token,
  /// which may follow in accepting states only, nothing follows but end tokens.
  State advance(State state, TokenId token) const override;
  /// Behind some more bytes.
  State advance(State state, std::string_view bytes) const;
  /// Whether the text as it stands is in the language, so that it may end.
  bool accepting(State state) const;
  /// Tokens t with advance(state, t) != nowhere. Computed when first asked for, then cached within
  /// a bound; what was handed out stays valid. No mask is empty: a state that no token leads out of
  /// throws.
  std::shared_ptr<const Mask> mask(State state) const override;
  /// The bytes that every text of the language goes on with here; empty where texts differ or one
  /// may end. At most `longest_forced` bytes at once.
  /// Sets `after`, if there is one, to the state after them.
  std::string forced_text(State state, State* after = nullptr) const;
  /// The same in tokens, as the tokenizer spells the bytes, each allowed behind those before it. A
  /// last token that a longer one may replace, depending on what follows, is left out. They are a
  /// proposal: other tokens may spell the same bytes.
  std::vector<TokenId> forced(State state) const override;

  static constexpr std::size_t longest_forced = 256;

  /// What it holds, for tests and reports.
  struct Usage {
    std::size_t states = 0;  ///< expressions met, of which states are some
    std::size_t bytes = 0;   ///< about, with all caches
    std::size_t masks = 0;   ///< cached
    double filled = 0.0;     ///< of the bound on states: 1 where the next new one throws
  };
  Usage usage() const;

 private:
  struct Machine;
  std::vector<TokenId> spelt_forced(State state) const;

  std::shared_ptr<const Vocabulary> vocabulary_;
  std::unique_ptr<Machine> machine_;
};

}  // namespace coppice::constraints
