#include <algorithm>

#include "drafting/child_drawer.h"
#include "drafting/draft_sampler.h"
#include "drafting/planted_faults-inl.h"
#include "kernels/logits.h"
#include "models/path_counts.h"

namespace coppice {
namespace {

// `Drawer` is ChildDrawer, or one with a planted fault.
template <typename Drawer>
class HostDraftSampler final : public DraftSampler {
 public:
  template <typename... Fault>
  HostDraftSampler(std::int64_t vocab_size, std::int64_t draft_vocab, NoiseCache& noise,
                   Fault... fault)
      : vocab_size_(vocab_size),
        draft_vocab_(static_cast<std::size_t>(draft_vocab)),
        common_vocab_(static_cast<std::size_t>(std::min(vocab_size, draft_vocab))),
        noise_(noise),
        drawer_(vocab_size, noise, fault...),
        score_probs_(common_vocab_) {}

  void begin(SequenceState& state, const StepKey& key, const SamplingParams& params, ChildDraw draw,
             double sharpness) override {
    state_ = &state;
    params_ = params;
    drawer_.begin(key, draw, sharpness);
  }

  PassTail* prepare(const TokenTree&, std::span<const std::int32_t>) override { return nullptr; }

  void take(const TokenTree& arena, std::span<const std::int32_t> nodes,
            const float* logits) override {
    for (const std::int32_t node : nodes) {
      process({logits, common_vocab_}, arena, node);
      logits += draft_vocab_;
    }
  }

  std::optional<DrawnChild> child(const TokenTree& arena, std::int32_t node,
                                  std::int32_t rank) override {
    return drawer_.child(arena, node, rank);
  }
  double expected_share(std::int32_t node) override {
    return drawer_.expected_share(node);
  }

  std::optional<BeliefEvidence> evidence(std::int32_t node, TokenId token) override {
    return drawer_.evidence(node, token);
  }

  PassTail* prepare_scores(std::span<const TokenId>, const SamplingParams&) override {
    return nullptr;
  }

  double take_scores(std::span<const TokenId> next, const SamplingParams& params,
                     const float* logits) override {
    SamplingParams plain = params;
    plain.repetition_penalty = 1.0;
    double sum = 0.0;
    for (const TokenId token : next) {
      process_logits({logits, common_vocab_}, plain, nullptr, scratch_, score_probs_);
      logits += draft_vocab_;
      const auto t = static_cast<std::size_t>(token);
      if (t < common_vocab_) sum += static_cast<double>(score_probs_[t]);
    }
    return sum / static_cast<double>(next.size());
  }

  const DistributionTable* distributions() const override { return &drawer_.distributions(); }

  std::unique_ptr<DraftSampler> with(DrawingFault fault) const override {
    const auto draft_vocab = static_cast<std::int64_t>(draft_vocab_);
    if (fault == DrawingFault::none) {
      return make_host_draft_sampler(vocab_size_, draft_vocab, noise_);
    }
    return std::make_unique<HostDraftSampler<FaultyChildDrawer<PhiloxDecisions>>>(
        vocab_size_, draft_vocab, noise_, fault);
  }

 private:
  void process(std::span<const float> row, const TokenTree& arena, std::int32_t node) {
    const std::span<float> declared = drawer_.prepare(node);
    const std::span<float> probs = declared.first(common_vocab_);
    std::fill(declared.begin() + static_cast<std::ptrdiff_t>(common_vocab_), declared.end(), 0.0f);
    if (params_.repetition_penalty == 1.0) {
      process_logits(row, params_, nullptr, scratch_, probs);
    } else {
      const PathCounts counts(state_->counts, arena, node);
      process_logits(row, params_, &state_->counts, scratch_, probs);
    }
    drawer_.ready(node);
  }

  const std::int64_t vocab_size_;
  const std::size_t draft_vocab_, common_vocab_;
  NoiseCache& noise_;
  Drawer drawer_;
  SequenceState* state_ = nullptr;
  SamplingParams params_;
  LogitsScratch scratch_;
  std::vector<float> score_probs_;
};

}  // namespace

std::unique_ptr<DraftSampler> make_host_draft_sampler(std::int64_t vocab_size,
                                                      std::int64_t draft_vocab, NoiseCache& noise) {
  return std::make_unique<HostDraftSampler<ChildDrawer>>(vocab_size, draft_vocab, noise);
}

}  // namespace coppice
