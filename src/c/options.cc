#include "c/options.h"

#include <charconv>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "c/handles.h"
#include "c/logprob_views.h"
#include "c/policy.h"
#include "engine/joined_names.h"
#include "engine/option_names.h"
#include "engine/policy_options.h"

namespace coppice::c {
namespace {

// The value of that name; NULL leaves `value` as it is.
template <typename Value, typename Values>
void read_name(const char* option, const char* name, const Values& all, Value& value) {
  if (name == nullptr) return;
  for (const auto each : all) {
    if (std::string_view(name_of(each)) == name) {
      value = each;
      return;
    }
  }
  throw_usage(cat(option, " ", quote(name), " is unknown; use one of ", joined_names(all)));
}

void check_reserved(std::int32_t reserved) {
  if (reserved != 0) throw_usage(cat("reserved ", reserved, ": use 0"));
}

Speculation speculation_of(const coppice_generate_options& given) {
  if (given.own_policy != nullptr) {
    if (given.policy != nullptr || given.tree != nullptr || given.tree_size != 0 ||
        given.tree_depth != 0 || given.beam_width != 0 || given.threshold != 0.0 ||
        given.plain_values != 0 || given.width_count != 0 || given.acceptance_vector_count != 0) {
      throw_usage(
          "own_policy: policy, or an option of coppice's policies, is given, too; leave it out");
    }
    return custom_of(given.own_policy);
  }
  PolicyOptions policy;
  policy.policy = Policy::dyspec;
  read_name("policy", given.policy, all_policies(), policy.policy);
  policy.tree_size = given.tree_size;
  policy.threshold = given.threshold;
  policy.tree_depth = given.tree_depth;
  policy.beam_width = given.beam_width;
  policy.plain_values = read_flag("plain_values", given.plain_values);
  const auto widths = span_of(given.widths, given.width_count, "widths");
  policy.widths.assign(widths.begin(), widths.end());
  policy.tree = text_of(given.tree);
  const auto acceptance =
      span_of(given.acceptance_vector, given.acceptance_vector_count, "acceptance_vector");
  policy.acceptance_vector.assign(acceptance.begin(), acceptance.end());
  return coppice::speculation_of(policy);
}

std::vector<std::int32_t> device_list(std::string_view text) {
  std::vector<std::int32_t> numbers;
  std::istringstream items{std::string(text)};
  for (std::string item; std::getline(items, item, ',');) {
    const char* const end = item.data() + item.size();
    std::int32_t number = -1;
    const auto [read, error] = std::from_chars(item.data(), end, number);
    if (error != std::errc() || read != end || number < 0) {
      throw_usage(cat("devices ", quote(text), ": list numbers of GPUs, such as \"0,1\""));
    }
    numbers.push_back(number);
  }
  return numbers;
}

}  // namespace

bool read_flag(const char* option, std::int32_t flag) {
  if (flag != 0 && flag != 1) throw_usage(cat(option, " ", flag, ": use 0 or 1"));
  return flag == 1;
}

template <>
coppice_engine_options usual() noexcept {
  const EngineOptions usual;
  coppice_engine_options options{};
  options.threads = usual.threads;
  options.max_tree_size = usual.max_tree_size;
  options.kv_tokens = usual.kv_tokens;
  options.max_sequences = usual.max_sequences;
  options.max_batch_rows = usual.max_batch_rows;
  options.prefix_cache = usual.prefix_cache;
  options.gpu_layers = usual.gpu_layers;
  options.draft_gpu_layers = usual.draft_gpu_layers;
  options.streamed_tree_size = usual.streamed_tree_size;
  options.cost_cache = usual.cost_cache;
  options.gpu_memory_fraction = usual.gpu_memory_fraction;
  options.gpu_memory = usual.gpu_memory;
  options.host_memory = usual.host_memory;
  options.tensor_parallel = usual.tensor_parallel;
  options.draft_tensor_parallel = usual.draft_tensor_parallel;
  options.rank_timeout = usual.rank_timeout;
  return options;
}

template <>
coppice_generate_options usual() noexcept {
  const GenerateOptions usual;
  coppice_generate_options options{};
  options.seed = usual.seed;
  options.stream = usual.stream;
  options.temperature = usual.sampling.temperature;
  options.top_p = usual.sampling.top_p;
  options.min_p = usual.sampling.min_p;
  options.repetition_penalty = usual.sampling.repetition_penalty;
  options.presence_penalty = usual.sampling.presence_penalty;
  options.frequency_penalty = usual.sampling.frequency_penalty;
  options.top_k = usual.sampling.top_k;
  options.max_new_tokens = usual.max_new_tokens;
  options.min_new_tokens = usual.min_new_tokens;
  options.top_logprobs = usual.top_logprobs;
  options.ignore_eos = usual.ignore_eos;
  options.add_bos = usual.add_bos;
  options.logprobs = usual.logprobs;
  options.use_draft = usual.use_draft;
  options.sampled_children = usual.sampled_children;
  return options;
}

template <>
coppice_request usual() noexcept {
  coppice_request request{};
  request.prompt_bytes = COPPICE_ZERO_TERMINATED;
  request.n = 1;
  return request;
}

EngineOptions options_of(const coppice_engine_options* options) {
  const coppice_engine_options given = read_struct(options, "options");
  EngineOptions own;
  need(given.target, "target");
  own.target = given.target;
  own.draft = text_of(given.draft);
  read_name("target_weights", given.target_weights, all_weight_roundings, own.target_weights);
  read_name("draft_weights", given.draft_weights, all_weight_roundings, own.draft_weights);
  read_name("device", given.device, all_devices, own.device);
  read_name("cpu_dtype", given.cpu_dtype, all_cpu_dtypes, own.cpu_dtype);
  read_name("kv_dtype", given.kv_dtype, all_kv_dtypes, own.kv_dtype);
  own.cost_table = text_of(given.cost_table);
  own.threads = given.threads;
  own.max_tree_size = given.max_tree_size;
  own.kv_tokens = given.kv_tokens;
  own.max_sequences = given.max_sequences;
  own.max_batch_rows = given.max_batch_rows;
  own.prefix_cache = read_flag("prefix_cache", given.prefix_cache);
  own.gpu_layers = given.gpu_layers;
  own.draft_gpu_layers = given.draft_gpu_layers;
  own.streamed_tree_size = given.streamed_tree_size;
  own.cost_cache = read_flag("cost_cache", given.cost_cache);
  own.gpu_memory_fraction = given.gpu_memory_fraction;
  own.gpu_memory = given.gpu_memory;
  own.host_memory = given.host_memory;
  own.tensor_parallel = given.tensor_parallel;
  own.draft_tensor_parallel = given.draft_tensor_parallel;
  own.devices = device_list(text_of(given.devices));
  own.rank_address = text_of(given.rank_address);
  own.rank_key = text_of(given.rank_key);
  own.rank_timeout = given.rank_timeout;
  if (given.progress != nullptr) {
    own.progress = [hear = given.progress, user = given.progress_user](const LoadEvent& event) {
      hear(user, event.what, event.fraction);
    };
  }
  return own;
}

GenerateOptions options_of(const coppice_generate_options* options) {
  if (options == nullptr) return {};
  const coppice_generate_options given = read_struct(options, "options");
  GenerateOptions own;
  own.seed = given.seed;
  own.stream = given.stream;
  own.sampling.temperature = given.temperature;
  own.sampling.top_k = given.top_k;
  own.sampling.top_p = given.top_p;
  own.sampling.min_p = given.min_p;
  own.sampling.repetition_penalty = given.repetition_penalty;
  own.sampling.presence_penalty = given.presence_penalty;
  own.sampling.frequency_penalty = given.frequency_penalty;
  own.max_new_tokens = given.max_new_tokens;
  own.min_new_tokens = given.min_new_tokens;
  own.top_logprobs = given.top_logprobs;
  own.ignore_eos = read_flag("ignore_eos", given.ignore_eos);
  own.add_bos = read_flag("add_bos", given.add_bos);
  own.logprobs = read_flag("logprobs", given.logprobs);
  own.use_draft = read_flag("use_draft", given.use_draft);
  for (const char* const text : span_of(given.stop, given.stop_count, "stop")) {
    need(text, "stop");
    own.stop.emplace_back(text);
  }
  const auto stop_tokens = span_of(given.stop_tokens, given.stop_token_count, "stop_tokens");
  own.stop_tokens.assign(stop_tokens.begin(), stop_tokens.end());
  const auto bias_tokens = span_of(given.bias_tokens, given.bias_count, "bias_tokens");
  const auto biases = span_of(given.biases, given.bias_count, "biases");
  for (std::size_t i = 0; i < biases.size(); ++i) {
    own.logit_bias.emplace_back(bias_tokens[i], biases[i]);
  }
  if (given.constraint != nullptr) own.constraint = given.constraint->constraint;
  read_name("acceptance", given.acceptance, acceptances_and_auto, own.acceptance);
  read_name("lookup", given.lookup, all_lookups, own.lookup);
  if (given.draft_temperature != nullptr) own.draft_temperature = *given.draft_temperature;
  own.sampled_children = read_flag("sampled_children", given.sampled_children);
  check_reserved(given.reserved);
  own.speculation = speculation_of(given);
  return own;
}

Request request_of(const coppice_request* request) {
  const coppice_request given = read_struct(request, "request");
  check_reserved(given.reserved);
  Request own;
  own.prompt = bytes_of(given.prompt, given.prompt_bytes, "prompt");
  const auto tokens = span_of(given.tokens, given.token_count, "tokens");
  own.tokens.assign(tokens.begin(), tokens.end());
  own.options = options_of(given.options);
  if (given.sequence != nullptr) own.sequence = &given.sequence->sequence;
  own.n = given.n;
  if (given.on_piece != nullptr) {
    own.callback = [hear = given.on_piece, user = given.user, text = std::string()](
                       std::int32_t sample, const Piece& piece) mutable {
      text = piece.text;  // with a zero byte at its end
      const LogprobViews logprobs(piece.logprobs);
      const coppice_piece view{.sample = sample,
                               .reserved = 0,
                               .text = text.c_str(),
                               .text_bytes = text.size(),
                               .tokens = piece.tokens.data(),
                               .token_count = piece.tokens.size(),
                               .logprobs = logprobs.data()};
      return hear(user, &view) == 0;
    };
  }
  return own;
}

}  // namespace coppice::c

void coppice_engine_options_init(coppice_engine_options* options, size_t size) {
  coppice::c::init_struct(options, size);
}

void coppice_generate_options_init(coppice_generate_options* options, size_t size) {
  coppice::c::init_struct(options, size);
}

void coppice_request_init(coppice_request* request, size_t size) {
  coppice::c::init_struct(request, size);
}
