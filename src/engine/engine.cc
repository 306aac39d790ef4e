#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/memory_limit.h"
#include "base/stopwatch.h"
#include "base/utf8.h"
#include "engine/check_speculation.h"
#include "engine/decode.h"
#include "engine/loading.h"
#include "engine/memory_plan.h"
#include "engine/open_sequence.h"
#include "engine/rank_process.h"
#include "engine/sequence_impl.h"
#include "engine/shared_vocabulary.h"
#include "kernels/rank_failure.h"
#include "models/gguf/gguf_file.h"
#include "models/model_folder.h"

namespace coppice {
const char* version() { return COPPICE_VERSION; }

const char* name_of(Acceptance acceptance) {
  constexpr std::array names = {"rejection", "coupled", "auto"};
  return names[static_cast<std::size_t>(acceptance)];
}
const char* name_of(DeviceKind device) {
  constexpr std::array names = {"auto", "cpu", "cuda"};
  return names[static_cast<std::size_t>(device)];
}
const char* name_of(CpuDtype dtype) {
  constexpr std::array names = {"auto", "f32", "bf16"};
  return names[static_cast<std::size_t>(dtype)];
}
const char* name_of(Lookup lookup) {
  constexpr std::array names = {"none", "text", "engine", "auto"};
  return names[static_cast<std::size_t>(lookup)];
}
const char* name_of(KvDtype dtype) {
  constexpr std::array names = {"auto", "f32", "bf16", "f16"};
  return names[static_cast<std::size_t>(dtype)];
}
const char* name_of(WeightRounding rounding) {
  constexpr std::array names = {"keep", "q8_0", "q6_k", "q4_k", "q4_0", "fp8", "int4"};
  return names[static_cast<std::size_t>(rounding)];
}
const char* name_of(FinishReason reason) {
  constexpr std::array names = {"length", "eos",       "stop",  "context",
                                "memory", "cancelled", "failed"};
  return names[static_cast<std::size_t>(reason)];
}

namespace {

// Returns the name of the rank that has the least memory; empty: this process, rank 0.
std::string least_rank(std::span<const RankMemory> others, const Device& device) {
  const bool on_host = device.shares_host_memory();
  const auto free = [&](const RankMemory& of) {
    return on_host ? of.host
                   : static_cast<std::int64_t>(std::min(of.device.free, of.device.budget));
  };
  std::int64_t least = free({on_host ? DeviceMemory{} : device.memory(), available_memory()});
  std::string name;
  for (std::size_t i = 0; i < others.size(); ++i) {
    if (free(others[i]) >= least) continue;
    least = free(others[i]);
    name = name_of_rank(static_cast<int>(i) + 1, static_cast<int>(others.size()) + 1);
  }
  return name;
}

// Calls plan(). If memory is too little, says that it is the memory of `rank`.
template <typename Plan>
auto with_least_rank(const std::string& rank, const Plan& plan) {
  try {
    return plan();
  } catch (const Error& error) {
    const std::string why = error.what();
    if (rank.empty() || !why.starts_with("too little memory")) throw;
    throw_failure(cat(why, "; ", rank, " has the least"));
  }
}

void check_bias(const std::vector<std::pair<TokenId, double>>& bias) {
  std::vector<TokenId> tokens;
  for (const auto& [token, added] : bias) {
    if (!(added >= -100.0 && added <= 100.0)) {
      throw_usage(
          cat("logit-bias ", added, " of token ", token, ": use a number from -100 to 100"));
    }
    tokens.push_back(token);
  }
  std::ranges::sort(tokens);
  const auto twice = std::ranges::adjacent_find(tokens);
  if (twice != tokens.end()) {
    throw_usage(cat("logit-bias: token ", *twice, " is given twice; add the two up"));
  }
}

}  // namespace

void GenerateOptions::validate() const {
  const GenerateOptions& o = *this;
  const SamplingParams& p = sampling;
  const auto refuse = [](const auto&... what) { throw_usage(cat(what...)); };
  if (o.max_new_tokens < 0) {
    refuse("max-new-tokens ", o.max_new_tokens,
           ": use 0 or more; for no limit a large number, as a text ends with the context at the "
           "latest");
  }
  if (!(p.temperature >= 0.0 && p.temperature <= 100.0)) {
    refuse("temperature ", p.temperature, ": use 0 (always the most probable token) to 100");
  }
  if (p.top_k < 0) refuse("top-k ", p.top_k, ": use 1 or more, or 0 for no limit");
  if (!(p.top_p > 0.0 && p.top_p <= 1.0))
    refuse("top-p ", p.top_p, ": use a number above 0, up to 1");
  if (!(p.min_p >= 0.0 && p.min_p <= 1.0)) refuse("min-p ", p.min_p, ": use a number from 0 to 1");
  if (!(p.repetition_penalty > 0.0 && p.repetition_penalty <= 100.0)) {
    refuse("repetition-penalty ", p.repetition_penalty,
           ": use a number above 0 (1 is off), up to 100");
  }
  for (const auto& [name, penalty] : {std::pair("presence-penalty", p.presence_penalty),
                                      std::pair("frequency-penalty", p.frequency_penalty)}) {
    if (!(penalty >= -2.0 && penalty <= 2.0)) {
      refuse(name, " ", penalty, ": use a number from -2 to 2 (0 is off)");
    }
  }
  check_bias(o.logit_bias);
  if (o.min_new_tokens < 0) refuse("min-new-tokens ", o.min_new_tokens, ": use 0 or more");
  if (o.min_new_tokens > o.max_new_tokens) {
    refuse("min-new-tokens ", o.min_new_tokens, ": at most max-new-tokens, ", o.max_new_tokens,
           ", are written; lower one or raise the other");
  }
  if (o.top_logprobs < 0 || o.top_logprobs > 20) {
    refuse("top-logprobs ", o.top_logprobs, ": use 0 to 20");
  }
  // Also refuses what is no number.
  if (const double d = o.draft_temperature.value_or(1.0); !(d >= 0.001 && d <= 100.0)) {
    refuse("draft-temperature ", d,
           ": use a number from 0.001 to 100 (the tree is weighed by the draft's probabilities)");
  }
  check_speculation(o);
  for (const std::string& text : o.stop) {
    if (text.empty()) refuse("stop: an empty text would stop at once; leave it out");
    if (!is_valid_utf8(text)) refuse("stop: ", quote(text), " is not valid UTF-8");
  }
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::Engine(Engine&&) noexcept = default;
Engine& Engine::operator=(Engine&&) noexcept = default;
Engine::~Engine() = default;

namespace {

std::unique_ptr<Engine::Impl> loaded(const EngineOptions& asked) {
  const double start = now_seconds();
  auto impl = std::make_unique<Engine::Impl>();
  EngineOptions& options = impl->options = asked;
  if (options.target.empty()) throw_usage("target: no model folder was given");
  check_capacities(options);
  impl->costs_are_saved = !options.cost_table.empty();
  impl->device = make_engine_device(options);
  Device& device = *impl->device;
  const DeviceScope scope(device);
  // Configs, weights and tokenizers are all of one file, whatever takes its name meanwhile.
  const auto held_target = held_gguf(options.target), held_draft = held_gguf(options.draft);
  require_roundings(options);
  std::optional<PairFiles> files(options);
  settle_ranks(options, *files, device);
  impl->further_devices = make_further_devices(options, device);
  const std::vector<Device*> devices = devices_by_rank(device, impl->further_devices);
  std::unique_ptr<RemoteRanks> others = await_ranks(options, device);
  std::vector<DeviceMemory> memory = memory_of_others({devices.begin(), devices.end()});
  std::int64_t host_memory = std::numeric_limits<std::int64_t>::max();
  for (const RankMemory& of : others ? others->memory() : std::span<const RankMemory>()) {
    memory.push_back(of.device);
    host_memory = std::min(host_memory, of.host);
  }
  const auto available = [&] { return std::min(available_memory(), host_memory); };
  const std::string least = others ? least_rank(others->memory(), device) : "";
  KvTokens kv;
  if (device.shares_host_memory()) {
    with_least_rank(least, [&] { plan_host_layers(options, *files, device, available()); });
    options.max_batch_rows = plan_host_rows(options, available());
  } else {
    const MemoryPlan plan =
        with_least_rank(least, [&] { return plan_memory(options, *files, device, memory); });
    kv = plan.kv;
    options.max_batch_rows = plan.batch_rows;
    options.max_tree_size = plan.max_tree_size;
    options.gpu_layers = plan.target_layers.resident;
    options.draft_gpu_layers = plan.draft_layers.resident;
  }
  // Code that is loaded beside passes may hold up ranks that wait for each other.
  if (devices.size() == 1 && !others) announce_models(options, device);
  impl->target.model = others ? load_target(options, *files, device, std::move(others))
                              : load_model(options, *files, ModelRole::target, devices);
  const ModelConfig& config = impl->target.model->config();
  impl->tokenizer = load_model_tokenizer(options.target, config.vocab_size, impl->no_tokenizer);
  if (!options.draft.empty()) {
    impl->draft.model = load_model(options, *files, ModelRole::draft, devices);
    require_shared_vocabulary(options, impl->tokenizer.get(), config.vocab_size,
                              impl->draft.model->config().vocab_size);
  }
  files.reset();  // packed is what passes read
  impl->sampler = make_sampler(device, *impl->target.model, impl->draft.model.get(), options);
  if (device.shares_host_memory()) {
    kv = with_least_rank(least, [&] {
      return plan_host_kv(options, config,
                          impl->draft.model ? &impl->draft.model->config() : nullptr,
                          device.kv_dtype(), available());
    });
  }
  impl->target.pool = make_pool(*impl->target.model, kv.target);
  impl->target_runner = std::make_unique<TargetRunner>(*impl->target.model, *impl->target.pool);
  impl->noise = std::make_unique<NoiseCache>(config.vocab_size, 32, options.max_sequences);
  if (impl->draft.model) {
    impl->draft.pool = make_pool(*impl->draft.model, kv.draft);
    const std::int64_t draft_vocab = impl->draft.model->config().vocab_size;
    impl->draft_runner = std::make_unique<DraftRunner>(
        *impl->draft.model, *impl->draft.pool,
        impl->sampler ? make_device_draft_sampling(*impl->sampler, batch_rows(options))
                      : make_host_draft_sampling(config.vocab_size, draft_vocab, *impl->noise));
  }
  impl->cache = std::make_unique<PrefixCache>(*impl->target.pool, impl->draft.pool.get());
  impl->load_seconds = now_seconds() - start;
  return impl;
}

}  // namespace

Engine Engine::load(const EngineOptions& asked) {
  return in_words("load", [&] { return Engine(loaded(asked)); });
}

Generation Engine::generate(std::string_view prompt, const GenerateOptions& options,
                            const PieceCallback& callback) {
  return generate(in_words("generate",
                           [&] {
                             impl_->check_bytes(prompt.size(), 0);
                             return impl_->encode(prompt, options.add_bos);
                           }),
                  options, callback);
}

Generation Engine::generate(std::span<const TokenId> prompt, const GenerateOptions& options,
                            const PieceCallback& callback) {
  auto sequence = SequenceAccess::impl(new_sequence());
  return write_sequence(std::move(sequence), prompt, options, callback);
}

std::vector<TokenId> Engine::tokenize(std::string_view text, bool add_bos) const {
  return in_words("tokenize", [&] { return impl_->encode(text, add_bos); });
}
bool Engine::has_tokenizer() const { return impl_->tokenizer != nullptr; }
bool Engine::has_draft() const { return impl_->draft.model != nullptr; }
std::int32_t Engine::context_length() const { return impl_->target.model->max_positions(); }
std::int64_t Engine::vocab_size() const { return impl_->target.model->config().vocab_size; }
double Engine::load_seconds() const { return impl_->load_seconds; }

std::string Engine::warning() const { return impl_->device->warning(); }

std::string Engine::detokenize(std::span<const TokenId> tokens) const {
  return in_words("detokenize", [&] {
    const Tokenizer& t = impl_->require_tokenizer();
    std::string bytes;
    for (const TokenId token : tokens) {
      impl_->check_token("detokenize", token);
      bytes += t.bytes_of(token);
    }
    return to_valid_utf8(bytes);
  });
}

Sequence Engine::new_sequence() {
  return in_words("new_sequence",
                  [&] { return Sequence(std::make_shared<Sequence::Impl>(*impl_)); });
}

JudgedTree Engine::judge_tree(std::string_view prompt, const GenerateOptions& options) {
  return in_words("judge_tree", [&] {
    impl_->check_bytes(prompt.size(), 0);
    return judge_tree(impl_->encode(prompt, options.add_bos), options);
  });
}

JudgedTree Engine::judge_tree(std::span<const TokenId> prompt, const GenerateOptions& options) {
  return in_words("judge_tree", [&] {
    impl_->check(options);
    SequenceState state = impl_->new_state();
    impl_->append_prompt(state, prompt);
    return judge_first_tree(*impl_, state, options);
  });
}

}  // namespace coppice
