// A pass's inputs in device memory, and its recordings.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <tuple>
#include <type_traits>
#include <vector>

#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/attention/flatten_plan.h"
#include "kernels/cuda/linear/product_timing.h"
#include "kernels/cuda/linear/weight_upload.h"
#include "kernels/cuda/memory.h"
#include "kernels/cuda/pass/expand_tail.h"
#include "kernels/cuda/pass/pass_view.h"
#include "kernels/cuda/pass/recently_used.h"
#include "kernels/cuda/pass/tail_parts.h"
#include "kernels/cuda/pass/transfers.h"
#include "kernels/device.h"

namespace coppice::cuda {

/// See kernels/device.h. One block of pinned memory is filled on the host and sent as a whole;
/// the slots of the prefix, which change little from pass to pass, are sent from where they first
/// differ. So are those of several texts (tail_parts.h), where they are many. Attention is planned
/// for each window of the limits; the plans have slots and tail in common.
class CudaPass : public Pass {
 public:
  CudaPass(const PassLimits& limits, const ResidentBlocks& blocks, const Allocate& allocate,
           Transfers& transfers, cudaStream_t stream, bool records, Preparations& preparations,
           ProductTiming& timing);
  ~CudaPass() override;
  CudaPass(const CudaPass&) = delete;
  CudaPass& operator=(const CudaPass&) = delete;

  PassShape begin(const PassInputs& inputs) override;
  void run(const PassVariant& variant, const std::function<void()>& body) override;

  bool has_finished() const override { return end_.has_passed(); }

  /// Sends what begin() took over; run() does it itself.
  void send();

  const PassView& view() const { return view_; }
  /// What attention by one of the limits' windows takes; view() is the first one's.
  struct Window {
    PassView view;
    AttentionLaunch launch;
  };
  Window window(std::int32_t tokens) const;
  const PassLimits& limits() const { return limits_; }
  const ResidentBlocks& blocks() const { return blocks_; }
  AttentionScratch scratch() const {
    return {partial_out_.as<float>(), partial_lse_.as<float>(), tickets_.as<std::uint32_t>()};
  }
  std::int32_t padded_rows() const { return shape_.rows; }
  std::int32_t padded_logit_rows() const { return shape_.logit_rows; }

  /// Row counts, kernels and variants met of late, each recorded by its third use.
  std::size_t recordings() const { return graphs_.size(); }
  /// Kept, the last used ones: a row count's, with and without rows that have no logits, and some
  /// kinds of epilogues, for all that a model's passes may have.
  static constexpr std::size_t most_recordings = 128;

 private:
  struct Destroy {
    void operator()(cudaGraph_t graph) const { (void)cudaGraphDestroy(graph); }
    void operator()(cudaGraphExec_t executable) const { (void)cudaGraphExecDestroy(executable); }
  };
  using Captured = std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, Destroy>;
  using Executable = std::unique_ptr<std::remove_pointer_t<cudaGraphExec_t>, Destroy>;
  struct Graph {
    Captured captured;      ///< between its capture and its instantiation
    Executable executable;  ///< null: runs unrecorded, as where there was no memory to record it in
    bool untimed = false;   ///< has products whose codes are still to be timed
    std::int32_t uses = 0;
  };
  /// The uses that a pass is captured at, that its recording is instantiated at, and that its
  /// products' codes are timed at. Timing takes as long as about ten passes of the 7B shape and
  /// gains a twentieth at most, as a rule: by that use a slower code has cost as much as timing it.
  static constexpr std::int32_t captured_use = 2, recorded_use = 3, timed_use = 256;
  std::int32_t plan(std::size_t window, const WindowedKv& kv, std::int32_t rows,
                    std::int32_t logit_rows);
  bool order_for_ranges(std::span<const KvSegment> segments, std::span<const KvSegment> tail);
  void stage_prefix(std::span<const KvSlot> prefix);
  char* stage_tail(std::span<const KvSegment> tail);
  void queue_inputs();
  void play(const PassVariant& variant, const std::function<void()>& whole);
  bool prepare(Graph& graph, const std::function<void()>& whole);
  bool records_at_once();
  Captured capture(const std::function<void()>& body);
  Executable instantiate(const Captured& captured);

  const PassLimits limits_;
  const ResidentBlocks blocks_;
  /// Places in inputs_; of windows' own parts the first one's, and how far the next one's is.
  struct Places {
    std::size_t scalars_step, ranges, ranges_step, tokens, positions, slots, logit_rows, row_tiles,
        row_tiles_step, tail, end;
    Places(const PassLimits& limits, const ResidentBlocks& blocks);
  };
  const Places at_;
  Transfers& transfers_;
  cudaStream_t stream_;
  const bool records_;
  Preparations& preparations_;  ///< the device's
  ProductTiming& timing_;       ///< likewise
  DeviceBuffer inputs_, prefix_, slot_table_, whole_tail_, partial_out_, partial_lse_, tickets_;
  PinnedArray<char> staged_;           ///< mirrors inputs_
  PinnedArray<KvSlot> staged_prefix_;  ///< mirrors prefix_
  std::int32_t prefix_tokens_ = 0;     ///< of staged_prefix_ that prefix_ is known to hold
  std::int32_t sent_tokens_ = 0;       ///< that it holds once what is staged has been sent
  PassView view_{};
  TailParts tail_parts_;
  bool in_parts_ = false;  ///< the tail is
  bool has_run_ = false;   ///< a pass with logits has
  Event end_;              ///< of the last run(), if it is watched
  RangePlanner planner_;
  PassShape shape_;
  std::vector<KvSegment> ordered_;  ///< the segments as ranges read them
  std::vector<KvSegment> near_;     ///< the segments that a window leaves
  static constexpr std::size_t most_windows = 4;
  using Launches = std::array<AttentionLaunch, most_windows>;
  Launches launches_{};  ///< of attention, by window
  using Graphs =
      RecentlyUsed<std::tuple<PassVariant, std::int32_t, std::int32_t, Launches, bool>, Graph>;
  Graphs graphs_{most_recordings};
};

}  // namespace coppice::cuda
