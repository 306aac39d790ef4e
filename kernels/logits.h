// Logits to the distribution that is sampled from, and drawing from it, on the host.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/sampling_params.h"
#include "base/token_rules.h"
#include "base/types.h"

namespace coppice {

/// Which tokens a text holds, for penalties: a count per vocabulary entry, so that tokens of a tree
/// path can be added and taken away again, and a bit for those that it holds, so that nobody has to
/// look at all entries to find them.
class TokenCounts {
 public:
  explicit TokenCounts(std::int64_t vocab_size = 0)
      : counts_(static_cast<std::size_t>(vocab_size)), words_((counts_.size() + 31) / 32) {}
  void add(TokenId token) {
    if (counts_[static_cast<std::size_t>(token)]++ == 0) flip(token);
  }
  void remove(TokenId token) {
    if (--counts_[static_cast<std::size_t>(token)] == 0) flip(token);
  }
  bool contains(TokenId token) const { return counts_[static_cast<std::size_t>(token)] > 0; }
  std::span<const std::int32_t> counts() const { return counts_; }
  /// Bit t % 32 of word t / 32: whether it holds token t.
  std::span<const std::uint32_t> words() const { return words_; }
  /// Visits what it holds of the tokens [begin, end), in order: visit(token, count).
  template <typename Visit>
  void each(std::size_t begin, std::size_t end, const Visit& visit) const {
    for (std::size_t word = begin / 32; word < words_.size() && word * 32 < end; ++word) {
      std::uint32_t bits = words_[word];
      if (word * 32 < begin) bits &= ~std::uint32_t{0} << begin % 32;
      for (; bits != 0; bits &= bits - 1) {
        const std::size_t token = word * 32 + static_cast<std::size_t>(std::countr_zero(bits));
        if (token < end) visit(static_cast<TokenId>(token), counts_[token]);
      }
    }
  }
  /// Whether it counts at all: it was made for a vocabulary.
  explicit operator bool() const { return !counts_.empty(); }

 private:
  void flip(TokenId token) {
    const auto t = static_cast<std::uint32_t>(token);
    words_[t / 32] ^= std::uint32_t{1} << t % 32;
  }

  std::vector<std::int32_t> counts_;
  std::vector<std::uint32_t> words_;
};

/// What is added to a token's logit.
struct TokenBias {
  TokenId token = -1;
  float bias = 0.0f;
};

/// Scratch memory of process_logits; reuse it to avoid allocation.
struct LogitsScratch {
  std::vector<float> masked;
  std::vector<float> penalised;
  std::vector<float> values;
  std::vector<float> selection;
  std::vector<std::int32_t> order;
};

/// Writes the processed distribution of `logits` to `probs` (both [vocab]): repetition penalty
/// over the tokens that `seen` holds (nullptr: none), frequency and presence penalty over those of
/// `fresh`, temperature, top-k, top-p, min-p, softmax.
/// Ties at a filter's edge keep the lower token id. Temperature 0 puts all mass on the argmax,
/// lowest id among equals. Probabilities sum to 1 within rounding; filtered tokens are exactly
/// 0. NaN logits count as minus infinity, plus infinity as the largest finite number; a row
/// without a finite logit is Error(failure). Top-p keeps the fewest most probable tokens whose
/// mass reaches it, at least one; min-p keeps tokens of at least min_p times the largest
/// probability. The result depends on the row's own values alone, never on where or when it is
/// computed.
void process_logits(std::span<const float> logits, const SamplingParams& params,
                    const TokenCounts* seen, LogitsScratch& scratch, std::span<float> probs,
                    const TokenCounts* fresh = nullptr);

/// The logits with minus infinity for all that `mask` does not allow, and `bias` added to them
/// where they have its tokens, in scratch.masked; as they are where there is neither. Empty: the
/// mask allows none of them.
std::span<const float> masked_logits(std::span<const float> logits, const TokenMask* mask,
                                     LogitsScratch& scratch, std::span<const TokenBias> bias = {});

/// Argmax after the penalties, lowest id among equals.
TokenId argmax_logits(std::span<const float> logits, const SamplingParams& params,
                      const TokenCounts* seen, const TokenCounts* fresh = nullptr);

/// Index of the token drawn from `probs` by inverse CDF with u in (0, 1): the first token whose
/// cumulative probability (in double, times the total mass) exceeds u; never one of mass 0.
/// A row without mass is Error(failure).
TokenId sample_inverse_cdf(std::span<const float> probs, double u);

/// Masses of the residual max(target - scale * draft, 0) and of draft, in double: the floats are
/// taken as exact, so a residual mass is right to about 1e-15.
struct ResidualMass {
  double residual = 0.0;
  double draft = 0.0;
};
ResidualMass residual_mass(std::span<const float> target, std::span<const float> draft,
                           double scale);

/// The token drawn by inverse CDF from max(target - scale * draft, 0); -1 when it has no mass.
TokenId sample_residual(std::span<const float> target, std::span<const float> draft, double scale,
                        double u);

/// masses[b] = mass of probs[b * block ... (b + 1) * block), in double; the last block may be
/// short. `block` is a multiple of 64.
void block_masses(std::span<const float> probs, std::size_t block, std::span<double> masses);

/// maxima[b] = largest probs[i] * noise[i] of block b, multiplied in float; an empty `noise`
/// counts as all ones.
void block_maxima(std::span<const float> probs, std::span<const float> noise, std::size_t block,
                  std::span<double> maxima);

/// The distribution proportional to (probs[i] * noise[i])^power.
struct PowerMoments {
  double largest = 0.0;   ///< probs[i] * noise[i]
  double sum = 0.0;       ///< of (probs[i] * noise[i] / largest)^power; 0 for a row without mass
  double mean = 0.0;      ///< of power log(probs[i] * noise[i] / largest) under it
  double variance = 0.0;  ///< of the same
};
/// `maxima` are block_maxima()'s of the same rows and `block`. Blocks that can together add no more
/// than 2^-20 to a sum of at least 1 are passed over.
PowerMoments power_moments(std::span<const float> probs, std::span<const float> noise,
                           std::size_t block, std::span<const double> maxima, double power);

/// Index of the largest probs[i] * noise[i] (multiplied in float), lowest among equals.
TokenId argmax_product(std::span<const float> probs, std::span<const float> noise);

}  // namespace coppice
