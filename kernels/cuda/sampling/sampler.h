// kernels/device_sampler.h on an NVIDIA GPU.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/cuda/linear/weight_upload.h"
#include "kernels/cuda/memory.h"
#include "kernels/cuda/pass/transfers.h"
#include "kernels/cuda/sampling/sampler_plan.h"
#include "kernels/cuda/sampling/sampling.h"
#include "kernels/device_sampler.h"

namespace coppice::cuda {

/// All memory is allocated when it is constructed. stage_...() leave inputs with `transfers`, which
/// have to be sent before what draw(), judge() and score() queue runs (a pass sends them). These
/// queue the same kernels for every batch, so they may be recorded; results go to page-locked
/// memory.
class CudaSampler final : public DeviceSampler {
 public:
  /// Queues on `stream`, that of `transfers`; both must outlive it, as must what `allocate`
  /// allocates from.
  /// Error(usage) for a vocabulary beyond most_vocab.
  CudaSampler(const SamplerLimits& limits, const Allocate& allocate, Transfers& transfers,
              cudaStream_t stream);
  ~CudaSampler() override;
  CudaSampler(const CudaSampler&) = delete;
  CudaSampler& operator=(const CudaSampler&) = delete;

  void stage_draw(const DrawBatch& batch) override;
  void draw(float* logits, std::int64_t stride, std::int32_t rows) override;
  void collect_draw(std::span<DrawnChildren> out) override;
  DrawnChildren more(const DrawText& text, const DrawRow& row, TokenId last) override;
  float score_of(const DrawText& text, const DrawRow& row, TokenId token) override;

  void stage_judge(std::span<const JudgeText> texts) override;
  void judge(float* logits, std::int32_t rows) override;
  void collect_verdicts(std::span<DeviceVerdict> out) override;

  void stage_score(std::span<const TokenId> next, const SamplingParams& params) override;
  void score(const float* logits, std::int64_t stride, std::int32_t rows) override;
  void collect_scores(std::span<float> out) override;

 private:
  struct Path {
    std::int32_t begin = 0, count = 0;
  };

  template <typename T>
  T* on_host(Place<T> place) const {
    return place.in(host_.data());
  }
  template <typename T>
  T* on_device(Place<T> place) const {
    return place.in(device_.data());
  }
  void write_head(const JobPlan& job, std::size_t rows, std::size_t texts);
  SamplingSetting setting_of(const SamplingParams& params, const StepKey& key,
                             AcceptanceRule rule) const;
  /// Input of a batch's text, whose penalised tokens it writes; a planted fault takes the next
  /// one's.
  struct TextInput {
    const SamplingParams& params;
    const StepKey& key;
    AcceptanceRule rule;
    const PenaltyText* penalty;
  };
  /// How much of a job's arrays its texts have taken.
  struct Used {
    std::size_t penalised, path_tokens, terms;
  };
  SamplingSetting setting_of(const JobPlan& job, const TextInput& text, const TextInput& next,
                             Used& used) const;
  /// Appends the text's tokens to the job's `penalised` texts. Returns the setting's `text`.
  std::int32_t write_text(const JobPlan& job, const PenaltyText& text,
                          std::size_t& penalised) const;
  /// Writes a bit for each token.
  void write_words(std::span<const std::uint32_t> words, std::uint32_t* out) const;
  /// Appends the terms of the text's tokens to the job's, and says in `setting` where.
  void write_terms(const JobPlan& job, const PenaltyText& text, SamplingSetting& setting,
                   std::size_t& terms) const;
  /// Appends the tokens on a node's path to the job's, of which there are `used`.
  Path write_path(const JobPlan& job, const PenaltyText& text, std::int32_t node,
                  std::size_t& used) const;
  /// The job's inputs up to `end`, and what its texts need beside.
  void hand_over(const JobPlan& job, std::size_t end, const Used& used = {});
  /// Appends a mask to the job's, if it is none of them yet. Returns its number; -1 for null.
  std::int32_t write_mask(const JobPlan& job, const std::shared_ptr<const TokenMask>& mask);
  /// Where a batch's results are told and counted. If all work has ended without them, the
  /// error says what the host and the GPU know of the batch.
  struct Awaited {
    std::uint32_t batch;
    Place<BatchHead> head;
    Place<std::uint32_t> mark, finished;
    const char* what;
  };
  void wait_for(const Awaited& awaited) const;
  template <typename T>
  void fetch(Place<T> host, Place<T> device, std::size_t count, const char* what) const;

  DrawInput input_of(const DrawRow& row) const;
  /// Stages and sends one row of a text and a token of it.
  DrawView send_row(const DrawText& text, const DrawRow& row, TokenId token);
  void list_rows(std::span<const JudgeText> texts);
  void check_batch(const char* what, std::size_t rows, std::size_t texts) const;
  std::int32_t launched(const char* what, std::int32_t rows, std::size_t staged) const;
  PenaltyView penalty_view(const JobPlan& job) const;
  MaskView mask_view(const JobPlan& job) const;
  StoreView store_view() const;

  const SamplerLimits limits_;
  const SamplerPlan plan_;
  Transfers& transfers_;
  const cudaStream_t stream_;
  DeviceBuffer device_;
  PinnedArray<std::byte> host_;
  std::uint32_t batches_ = 0;  ///< staged so far
  std::uint32_t draw_batch_ = 0, judge_batch_ = 0;
  std::size_t draw_staged_ = 0, judge_staged_ = 0, score_staged_ = 0;
  // By row staged:
  std::vector<bool> draw_scores_;                        ///< whether its children come with scores
  std::vector<bool> draw_samples_;                       ///< whether they are sampled
  std::vector<bool> draw_masked_;                        ///< whether a mask may leave D nothing
  std::vector<std::int32_t> roots_;                      ///< by tree staged: the first row
  std::vector<std::shared_ptr<const TokenMask>> masks_;  ///< of the job that is staged, while it is
};

}  // namespace coppice::cuda
