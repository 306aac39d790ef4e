#include "results.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

namespace coppice_python {
namespace {

nb::object text_of(const char* text, std::size_t bytes) {
  return nb::steal(PyUnicode_DecodeUTF8(text, static_cast<Py_ssize_t>(bytes), "replace"));
}

nb::dict dict_of(const coppice_statistics& of) {
  nb::dict seconds;
  seconds["load"] = of.load_seconds;
  seconds["prefill"] = of.prefill_seconds;
  seconds["draft"] = of.draft_seconds;
  seconds["verify"] = of.verify_seconds;
  seconds["sampling"] = of.sampling_seconds;
  seconds["other"] = of.other_seconds;
  seconds["total"] = of.total_seconds;
  nb::dict dict;
  dict["prompt_tokens"] = of.prompt_tokens;
  dict["cached_tokens"] = of.cached_tokens;
  dict["cached_draft_tokens"] = of.cached_draft_tokens;
  dict["prefill_tokens"] = of.prefill_tokens;
  dict["steps"] = of.steps;
  dict["draft_passes"] = of.draft_passes;
  dict["looked_up"] = of.looked_up;
  dict["looked_up_accepted"] = of.looked_up_accepted;
  dict["accepted_length"] = of.accepted_length;
  dict["emitted_per_step"] = of.emitted_per_step;
  dict["tree_size_mean"] = of.tree_size_mean;
  dict["batch_mean"] = of.batch_mean;
  dict["queue_seconds"] = of.queue_seconds;
  dict["preemptions"] = of.preemptions;
  dict["seconds"] = seconds;
  dict["preparing_seconds"] = of.preparing_seconds;
  dict["tokens_per_second"] = of.tokens_per_second;
  dict["decode_tokens_per_second"] = of.decode_tokens_per_second;
  return dict;
}

nb::dict layers_of(std::int32_t layers, std::int32_t resident, std::uint64_t streamed_bytes,
                   const char* streamed_from) {
  nb::dict dict;
  dict["layers"] = layers;
  dict["resident"] = resident;
  dict["streamed_bytes"] = streamed_bytes;
  dict["streamed_from"] = streamed_from;
  return dict;
}

nb::dict dict_of(const coppice_used& of) {
  nb::dict dict;
  dict["policy"] = of.policy;
  dict["tree_size"] = of.tree_size;
  dict["lookup"] = of.lookup;
  dict["constrained"] = of.constrained != 0;
  dict["planned_for"] = of.planned_for;
  dict["acceptance"] = of.acceptance;
  dict["temperature"] = of.temperature;
  dict["draft_temperature"] = of.draft_temperature;
  dict["presence_penalty"] = of.presence_penalty;
  dict["frequency_penalty"] = of.frequency_penalty;
  dict["min_new_tokens"] = of.min_new_tokens;
  dict["biased_tokens"] = of.biased_tokens;
  dict["seed"] = of.seed;
  dict["device"] = of.device;
  dict["dtype"] = of.dtype;
  dict["kv_dtype"] = of.kv_dtype;
  dict["target_weights"] = of.target_weights;
  dict["draft_weights"] = of.draft_weights;
  dict["target_layers"] = layers_of(of.target_layers, of.target_layers_resident,
                                    of.target_streamed_bytes, of.target_streamed_from);
  dict["draft_layers"] = layers_of(of.draft_layers, of.draft_layers_resident,
                                   of.draft_streamed_bytes, of.draft_streamed_from);
  dict["target_devices"] = of.target_devices;
  dict["draft_devices"] = of.draft_devices;
  return dict;
}

// A copy that the array owns.
template <typename To, typename From>
nb::object column(const From* from, std::size_t count) {
  auto* const copy = new To[count];
  std::copy_n(from, count, copy);
  const nb::capsule owner(copy, [](void* data) noexcept { delete[] static_cast<To*>(data); });
  return nb::cast(nb::ndarray<nb::numpy, To, nb::ndim<1>>(copy, {count}, owner));
}

}  // namespace

nb::list list_of(const std::int32_t* tokens, std::size_t count) {
  nb::list list;
  for (std::size_t i = 0; i < count; ++i) list.append(tokens[i]);
  return list;
}

Logprobs copy_of(const coppice_token_logprob* const* logprobs, std::size_t count) {
  Logprobs all;
  for (std::size_t i = 0; logprobs != nullptr && i < count; ++i) {
    const coppice_token_logprob& one = *logprobs[i];
    all.push_back({one.token, one.logprob, {}});
    for (std::int32_t j = 0; j < one.top_count; ++j) {
      all.back().top.emplace_back(one.top_tokens[j], one.top_logprobs[j]);
    }
  }
  return all;
}

nb::object list_of(const Logprobs& logprobs) {
  if (logprobs.empty()) return nb::none();
  nb::list all;
  for (const Logprob& one : logprobs) {
    all.append(nb::make_tuple(one.token, one.logprob, nb::cast(one.top)));
  }
  return all;
}

nb::dict dict_of(const coppice_outcome& outcome) {
  nb::list samples;
  for (std::size_t i = 0; i < coppice_outcome_count(&outcome); ++i) {
    const coppice_generation& of = *coppice_outcome_generation(&outcome, i);
    nb::dict sample;
    sample["text"] = text_of(of.text, of.text_bytes);
    sample["tokens"] = list_of(of.tokens, of.token_count);
    sample["finish_reason"] = of.finish_reason;
    sample["statistics"] = dict_of(*of.statistics);
    sample["used"] = dict_of(*of.used);
    sample["logprobs"] = list_of(copy_of(of.logprobs, of.token_count));
    samples.append(sample);
  }
  nb::dict dict;
  dict["samples"] = samples;
  return dict;
}

nb::dict dict_of(const coppice_cache_statistics& of) {
  nb::dict dict;
  dict["target_slots"] = of.target_slots;
  dict["draft_slots"] = of.draft_slots;
  dict["target_free"] = of.target_free;
  dict["draft_free"] = of.draft_free;
  dict["target_shared"] = of.target_shared;
  dict["draft_shared"] = of.draft_shared;
  dict["evictable"] = of.evictable;
  dict["nodes"] = of.nodes;
  dict["prompt_tokens"] = of.prompt_tokens;
  dict["cached_tokens"] = of.cached_tokens;
  dict["cached_draft_tokens"] = of.cached_draft_tokens;
  dict["evicted_tokens"] = of.evicted_tokens;
  dict["read_by_text"] = of.read_by_text;
  dict["read_by_tree"] = of.read_by_tree;
  return dict;
}

nb::dict dict_of(const coppice_engine_counts& of) {
  nb::dict dict;
  dict["running"] = of.running;
  dict["waiting"] = of.waiting;
  dict["passes"] = of.passes;
  dict["steps"] = of.steps;
  dict["new_tokens"] = of.new_tokens;
  dict["drafted"] = of.drafted;
  dict["accepted"] = of.accepted;
  dict["preempted"] = of.preempted;
  dict["drafted_by_depth"] = column<std::int64_t>(of.drafted_by_depth, of.depths);
  dict["accepted_by_depth"] = column<std::int64_t>(of.accepted_by_depth, of.depths);
  return dict;
}

nb::dict dict_of(const coppice_tree& of) {
  nb::dict dict;
  dict["token"] = column<std::int32_t>(of.token, of.count);
  dict["parent"] = column<std::int32_t>(of.parent, of.count);
  dict["depth"] = column<std::int32_t>(of.depth, of.count);
  dict["rank"] = column<std::int32_t>(of.rank, of.count);
  dict["draft_prob"] = column<double>(of.draft_prob, of.count);
  dict["path_prob"] = column<double>(of.path_prob, of.count);
  dict["value"] = column<double>(of.value, of.count);
  dict["target_prob"] = column<double>(of.target_prob, of.count);
  dict["accepted"] = column<bool>(of.accepted, of.count);
  dict["looked_up"] = column<bool>(of.looked_up, of.count);
  dict["forced"] = column<bool>(of.forced, of.count);
  dict["state"] = column<std::int32_t>(of.state, of.count);
  dict["allowed"] = column<std::int32_t>(of.allowed, of.count);
  dict["bonus"] = of.bonus;
  dict["draft_passes"] = of.draft_passes;
  dict["acceptance"] = of.acceptance;
  return dict;
}

}  // namespace coppice_python
