// From the draft's logits to drawn children.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "base/draft_evidence.h"
#include "base/random.h"
#include "drafting/belief_temperature.h"
#include "drafting/draft_source.h"
#include "drafting/planted_faults.h"
#include "kernels/device_sampler.h"
#include "kernels/noise.h"
#include "models/model.h"
#include "models/sequence_state.h"

namespace coppice {

/// Holds D of the evaluated nodes of one growing tree and draws their children. One
/// implementation reads logits on the host, the other leaves them on the device.
class DraftSampler : public DraftEvidence {
 public:
  /// Starts a step: forgets all nodes. `state` outlives the step. `inverse_temperature`: of
  /// beliefs, with which children come where they are not sampled; 0: none.
  virtual void begin(SequenceState& state, const StepKey& key, const SamplingParams& params,
                     AcceptanceRule draw, double inverse_temperature) = 0;
  /// Ends it: what its nodes held is free for others.
  virtual void end() = 0;
  /// The next rows of logits of the pass that DraftSampling has begun are to be these nodes'.
  virtual void stage(const TokenTree& candidates, std::span<const std::int32_t> nodes) = 0;
  /// The same nodes, in the same order among samplers: the pass has left their logits.
  virtual void take(const TokenTree& candidates, std::span<const std::int32_t> nodes) = 0;
  /// These nodes have lost their place for good.
  virtual void forget(std::span<const std::int32_t> /*nodes*/) {}
  /// See DraftSource::exclude.
  virtual void exclude(std::int32_t node, TokenId token) = 0;
  /// See DraftSource::child.
  virtual std::optional<DrawnChild> child(const TokenTree& candidates, std::int32_t node,
                                          std::int32_t rank) = 0;
  /// See DraftSource::belief_of.
  virtual double belief_of(const TokenTree& /*candidates*/, std::int32_t /*node*/,
                           TokenId /*token*/) {
    return -1.0;
  }
  /// See DraftSource::expected_share.
  virtual double expected_share(std::int32_t /*node*/) { return -1.0; }

  /// See BasicChildDrawer::evidence.
  virtual std::optional<BeliefEvidence> evidence(std::int32_t node, TokenId token) = 0;
};

/// Where samplers of a draft come from, and what they share: the logits of its passes, which have
/// the nodes of one tree or of several. For every pass: begin_pass(), DraftSampler::stage() of each
/// tree and epilogue() before it, collect() and DraftSampler::take() of each tree behind it. Not
/// for several threads at a time. Outlives its samplers.
class DraftSampling {
 public:
  virtual ~DraftSampling() = default;
  /// A sampler for one tree at a time.
  virtual std::unique_ptr<DraftSampler> make() = 0;

  /// Forgets what was staged for an earlier pass.
  virtual void begin_pass() {}
  /// Returns what is to be queued behind the pass, nullptr for nothing.
  virtual PassEpilogue* epilogue() { return nullptr; }
  /// Waits for the pass, which leaves these logits ([nodes, draft vocab]).
  virtual void collect(const float* logits) = 0;

  /// For a pass whose rows are scored, before and behind it: how probable the draft finds the token
  /// after each, without bias and penalties, which take_scores writes to `out`.
  virtual PassEpilogue* prepare_scores(std::span<const TokenId> next,
                                       const SamplingParams& params) = 0;
  virtual void take_scores(std::span<const TokenId> next, const SamplingParams& params,
                           const float* logits, std::span<float> out) = 0;

  /// Samplers made from now on draw with a fault: for tests that must fail, and for audits.
  virtual void plant(DrawingFault fault) = 0;
};

/// Over `vocab_size` entries. The draft's rows have `draft_vocab`; what only one of the two has is
/// never drawn.
/// `noise` must outlive the result.
std::unique_ptr<DraftSampling> make_host_draft_sampling(std::int64_t vocab_size,
                                                        std::int64_t draft_vocab,
                                                        NoiseCache& noise);
/// `sampler` must outlive the result and have `store_rows` rows, which all trees share.
std::unique_ptr<DraftSampling> make_device_draft_sampling(DeviceSampler& sampler,
                                                          std::int32_t store_rows);

}  // namespace coppice
