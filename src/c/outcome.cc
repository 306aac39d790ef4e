// What requests came to, as C reads it.
#include "c/outcome.h"

#include <exception>
#include <memory>
#include <utility>

namespace coppice::c {
namespace {

coppice_statistics view_of(const Statistics& of) {
  return {.prompt_tokens = of.prompt_tokens,
          .cached_tokens = of.cached_tokens,
          .cached_draft_tokens = of.cached_draft_tokens,
          .prefill_tokens = of.prefill_tokens,
          .steps = of.steps,
          .draft_passes = of.draft_passes,
          .looked_up = of.looked_up,
          .looked_up_accepted = of.looked_up_accepted,
          .accepted_length = of.accepted_length,
          .emitted_per_step = of.emitted_per_step,
          .tree_size_mean = of.tree_size_mean,
          .batch_mean = of.batch_mean,
          .queue_seconds = of.queue_seconds,
          .preemptions = of.preemptions,
          .reserved = 0,
          .load_seconds = of.seconds.load,
          .prefill_seconds = of.seconds.prefill,
          .draft_seconds = of.seconds.draft,
          .verify_seconds = of.seconds.verify,
          .sampling_seconds = of.seconds.sampling,
          .other_seconds = of.seconds.other,
          .total_seconds = of.seconds.total,
          .preparing_seconds = of.preparing_seconds,
          .tokens_per_second = of.tokens_per_second,
          .decode_tokens_per_second = of.decode_tokens_per_second};
}

// Points into `of`.
coppice_used view_of(const Used& of) {
  return {.policy = of.policy.c_str(),
          .lookup = name_of(of.lookup),
          .planned_for = of.planned_for.c_str(),
          .acceptance = name_of(of.acceptance),
          .device = of.device.c_str(),
          .dtype = of.dtype.c_str(),
          .kv_dtype = of.kv_dtype.c_str(),
          .target_weights = of.target_weights.c_str(),
          .draft_weights = of.draft_weights.c_str(),
          .temperature = of.temperature,
          .draft_temperature = of.draft_temperature,
          .presence_penalty = of.presence_penalty,
          .frequency_penalty = of.frequency_penalty,
          .min_new_tokens = of.min_new_tokens,
          .biased_tokens = of.biased_tokens,
          .seed = of.seed,
          .tree_size = of.tree_size,
          .constrained = of.constrained,
          .target_layers = of.target_layers.layers,
          .target_layers_resident = of.target_layers.resident,
          .draft_layers = of.draft_layers.layers,
          .draft_layers_resident = of.draft_layers.resident,
          .target_streamed_bytes = of.target_layers.streamed_bytes,
          .draft_streamed_bytes = of.draft_layers.streamed_bytes,
          .target_streamed_from = of.target_layers.streamed_from.c_str(),
          .draft_streamed_from = of.draft_layers.streamed_from.c_str(),
          .target_devices = of.target_devices,
          .draft_devices = of.draft_devices};
}

// Takes no memory.
Generation empty_generation() {
  Generation none;
  none.finish_reason = FinishReason::failed;
  return none;
}

}  // namespace

StoredGeneration::StoredGeneration(Generation of)
    : generation(std::move(of)), logprobs(generation.logprobs) {
  statistics = view_of(generation.statistics);
  used = view_of(generation.used);
  view = {.text = generation.text.c_str(),
          .text_bytes = generation.text.size(),
          .tokens = generation.tokens.data(),
          .token_count = generation.tokens.size(),
          .finish_reason = name_of(generation.finish_reason),
          .statistics = &statistics,
          .used = &used,
          .logprobs = logprobs.data()};
}

void fill(coppice_outcome& handle, Outcome outcome) noexcept {
  handle.failure = failure_of(outcome.error);
  handle.count = outcome.samples.size();
  const auto note_failure = [&](const auto& body) {
    try {
      body();
    } catch (...) {
      if (handle.failure.status == COPPICE_OK) {
        handle.failure = failure_of(std::current_exception());
      }
    }
  };
  note_failure([&] { handle.samples.resize(handle.count); });
  for (std::size_t i = 0; i < handle.samples.size(); ++i) {
    note_failure([&] {
      handle.samples[i] = std::make_unique<StoredGeneration>(std::move(outcome.samples[i]));
    });
  }
}

}  // namespace coppice::c

coppice_status coppice_outcome_status(const coppice_outcome* outcome) {
  return outcome->failure.status;
}

const char* coppice_outcome_message(const coppice_outcome* outcome) {
  return outcome->failure.message.c_str();
}

size_t coppice_outcome_count(const coppice_outcome* outcome) { return outcome->count; }

const coppice_generation* coppice_outcome_generation(const coppice_outcome* outcome, size_t index) {
  static const coppice::c::StoredGeneration failed(coppice::c::empty_generation());
  if (index >= outcome->count) return nullptr;
  const auto& samples = outcome->samples;
  return index < samples.size() && samples[index] != nullptr ? &samples[index]->view : &failed.view;
}

void coppice_outcome_free(coppice_outcome* outcome) { delete outcome; }
