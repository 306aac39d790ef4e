// Drawing children on the host, over any source of decisions. Included by
// drafting/host_draft_sampler.cc and tests.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "base/rule_end.h"
#include "drafting/draft_sampler.h"
#include "drafting/planted_faults-inl.h"
#include "kernels/logits.h"
#include "models/path_counts.h"

namespace coppice {

/// What all samplers use, one at a time; and rows of those that are in no step.
struct HostSampling {
  const std::int64_t vocab_size;
  const std::size_t draft_vocab, common_vocab;
  NoiseCache& noise;
  const std::int32_t cells;  ///< of the number that will judge a child
  LogitsScratch scratch;
  const float* logits = nullptr;  ///< of a pass, from the next row on that a sampler takes
  const std::shared_ptr<SpareRows> spare = std::make_shared<SpareRows>();
};

/// `Drawer` is BasicChildDrawer, or one with a planted fault.
template <typename Drawer>
class HostDraftSampler final : public DraftSampler {
 public:
  template <typename... Decisions>
  explicit HostDraftSampler(HostSampling& shared, Decisions... decisions)
      : shared_(shared),
        drawer_(shared.vocab_size, shared.noise, decisions..., shared.cells, shared.spare) {}

  void begin(SequenceState& state, const StepKey& key, const SamplingParams& params,
             AcceptanceRule draw, double inverse_temperature) override {
    state_ = &state;
    params_ = params;
    drawer_.begin(key, draw, inverse_temperature);
  }
  void end() override { drawer_.end(); }

  void stage(const TokenTree&, std::span<const std::int32_t>) override {}
  void take(const TokenTree& candidates, std::span<const std::int32_t> nodes) override {
    for (const std::int32_t node : nodes) {
      take(candidates, node, {shared_.logits, shared_.common_vocab});
      shared_.logits += shared_.draft_vocab;
    }
  }

  void exclude(std::int32_t node, TokenId token) override { drawer_.exclude(node, token); }
  std::optional<DrawnChild> child(const TokenTree& candidates, std::int32_t node,
                                  std::int32_t rank) override {
    return drawer_.child(candidates, node, rank);
  }
  double belief_of(const TokenTree& candidates, std::int32_t node, TokenId token) override {
    return drawer_.belief_of(candidates, node, token);
  }
  double expected_share(std::int32_t node) override { return drawer_.expected_share(node); }

  std::optional<BeliefEvidence> evidence(std::int32_t node, TokenId token) override {
    return drawer_.evidence(node, token);
  }

  const DistributionTable* distributions() const override { return &drawer_.distributions(); }

 private:
  void take(const TokenTree& candidates, std::int32_t node, std::span<const float> logits) {
    const std::span<float> declared = drawer_.prepare(node);
    const std::span<float> probs = declared.first(logits.size());
    std::fill(declared.begin() + static_cast<std::ptrdiff_t>(logits.size()), declared.end(), 0.0f);
    const auto mask = candidates.mask(node);
    logits = masked_logits(logits, mask.get(), shared_.scratch, state_->bias);
    // The draft has no token that may follow, or none is wanted.
    if (logits.empty() || ends_text(candidates, node)) {
      std::fill(probs.begin(), probs.end(), 0.0f);
    } else {
      const PathCounts counts(*state_, params_, candidates, node);
      process_logits(logits, params_, counts.seen(), shared_.scratch, probs, counts.fresh());
    }
    drawer_.ready(node);
  }

  HostSampling& shared_;
  Drawer drawer_;
  SequenceState* state_ = nullptr;
  SamplingParams params_;
};

/// Draws children by `Decisions` (base/decisions.h).
template <typename Decisions>
class HostDraftSampling final : public DraftSampling {
 public:
  /// As make_host_draft_sampling(); `cells` as BasicChildDrawer has them.
  HostDraftSampling(std::int64_t vocab_size, std::int64_t draft_vocab, NoiseCache& noise,
                    Decisions decide = {}, std::int32_t cells = acceptance_cells)
      : shared_{vocab_size,
                static_cast<std::size_t>(draft_vocab),
                static_cast<std::size_t>(std::min(vocab_size, draft_vocab)),
                noise,
                cells,
                {}},
        decide_(std::move(decide)),
        score_probs_(shared_.common_vocab) {}

  std::unique_ptr<DraftSampler> make() override {
    if (fault_ == DrawingFault::none) {
      return std::make_unique<HostDraftSampler<BasicChildDrawer<Decisions>>>(shared_, decide_);
    }
    return std::make_unique<HostDraftSampler<FaultyChildDrawer<Decisions>>>(shared_, fault_,
                                                                            decide_);
  }

  void collect(const float* logits) override { shared_.logits = logits; }

  PassEpilogue* prepare_scores(std::span<const TokenId>, const SamplingParams&) override {
    return nullptr;
  }

  void take_scores(std::span<const TokenId> next, const SamplingParams& params, const float* logits,
                   std::span<float> out) override {
    for (std::size_t row = 0; row < next.size(); ++row) {
      process_logits({logits, shared_.common_vocab}, params, nullptr, shared_.scratch,
                     score_probs_);
      logits += shared_.draft_vocab;
      const auto t = static_cast<std::size_t>(next[row]);
      out[row] = t < shared_.common_vocab ? score_probs_[t] : 0.0f;
    }
  }

  void plant(DrawingFault fault) override { fault_ = fault; }

 private:
  HostSampling shared_;
  Decisions decide_;
  std::vector<float> score_probs_;
  DrawingFault fault_ = DrawingFault::none;
};

}  // namespace coppice
