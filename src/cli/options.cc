#include "cli/options.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <random>
#include <utility>

#include "base/error.h"
#include "cli/constraint_options.h"
#include "cli/idle_placement.h"
#include "cli/keys.h"
#include "cli/option_values.h"
#include "cli/terminal.h"
#include "engine/check_speculation.h"
#include "engine/cpu_type.h"
#include "engine/tree_plan.h"
#include "kernels/cuda_code.h"
#include "kernels/device.h"
#include "models/gguf/gguf_file.h"

namespace coppice::cli {
namespace {

namespace fs = std::filesystem;

}  // namespace

// Where COPPICE_MODELS says, beside an installed binary, in the source tree.
fs::path find_stories() {
  std::vector<fs::path> places;
  if (const char* models = std::getenv("COPPICE_MODELS"); models != nullptr && *models != '\0') {
    places = {fs::path(models) / "stories", fs::path(models)};
  } else {
    std::error_code error;
    const fs::path binary = fs::read_symlink("/proc/self/exe", error);
    if (!error) {
      places.push_back(binary.parent_path() / COPPICE_RELATIVE_MODELS / "stories");
      places.push_back(binary.parent_path().parent_path() / "models" / "stories");
    }
    places.push_back(fs::path(COPPICE_SOURCE_MODELS) / "stories");
  }
  std::error_code ignored;
  for (const fs::path& place : places) {
    if (fs::exists(place / "target" / "config.json", ignored)) return place;
  }
  std::string looked;
  for (const fs::path& place : places)
    looked += (looked.empty() ? "" : ", ") + quote(place.string());
  throw_failure(cat("the shipped models were not found (looked in ", looked,
                    "); set COPPICE_MODELS to their folder or give --target and --draft"));
}

po::options_description cpu_model_options() {
  po::options_description d("Models");
  d.add_options()("target", po::value<std::string>()->value_name("MODEL"),
                  "Hugging Face folder or GGUF file of the target; with neither this nor --draft, "
                  "the shipped pair "
                  "(beside the program, or in the folder that COPPICE_MODELS names)")(
      "draft", po::value<std::string>()->value_name("MODEL|none|self:TYPE"),
      "folder or GGUF file of the draft; none for plain decoding; self:q4_k, or another of "
      "--draft-weights, for "
      "the target itself in fewer bits")(
      "target-weights",
      po::value<std::string>()->default_value("keep")->value_name(any_of(all_weight_roundings)),
      "round the target's matrices as they are read, if they are stored in 16 or 32 bits, or in "
      "FP8: less "
      "memory and faster, but another target, whose texts differ")(
      "draft-weights",
      po::value<std::string>()->default_value("keep")->value_name(any_of(all_weight_roundings)),
      "the same of the draft, which changes no text's distribution")(
      "threads", po::value<int>()->default_value(0)->value_name("N"),
      "CPU threads; 0: as many as this process may use")(
      "cpu-dtype",
      po::value<std::string>()->default_value("auto")->value_name(any_of(all_cpu_dtypes)),
      "type of activations on the CPU, where weights stay as they are stored: f32; auto, which is "
      "f32 but for products with quantised weights, where activations are rounded to 8 bits (FP8's "
      "are not); or "
      "bf16, which rounds both, takes AVX-512 BF16 or AMX, and may be faster for large trees (info "
      "DIR says). COPPICE_CPU_ISA in the environment caps the instructions: sse4, avx2, avx512, "
      "avx512_bf16 or amx")(
      "kv-dtype",
      po::value<std::string>()->default_value("auto")->value_name(any_of(all_kv_dtypes)),
      "type of keys and values: f32, bf16, f16, or auto: f32 on the CPU, the model's type on a "
      "GPU, which takes no other. 16 bits halve the KV's memory and read long texts faster; their "
      "rounding changes the target's logits a little")(
      "kv-tokens", po::value<std::int32_t>()->default_value(0)->value_name("N"),
      "KV slots per model, in pages of 16, for all texts together; 0: one context of up to 8192 "
      "tokens, up to four in 256 MiB, or 2048 for each of --parallel texts; less if memory is "
      "short");
  return d;
}

po::options_description rank_link_options() {
  po::options_description d;
  d.add_options()("rank-key", po::value<std::string>()->value_name("FILE|env:NAME"),
                  "a key that processes which share a target must have, in a file or a variable of "
                  "the environment; needed where other machines can reach the address")(
      "rank-timeout", po::value<double>()->default_value(300.0, "300")->value_name("SECONDS"),
      "longest that parts of a split target wait for each other, and that one pass may take");
  return d;
}

po::options_description model_options() {
  po::options_description d("Models and device");
  const po::options_description shared = cpu_model_options();
  for (const auto& option : shared.options()) d.add(option);
  d.add_options()("device",
                  po::value<std::string>()->default_value("auto")->value_name(any_of(all_devices)),
                  "auto: a GPU if there is one; info says")(
      "gpu-memory-fraction", po::value<double>()->default_value(0.9, "0.9")->value_name("F"),
      "part of a GPU's memory that may be used; of each if there are several")(
      "gpu-memory", po::value<std::string>()->value_name("SIZE"),
      "instead: so much of it, such as 24GiB")(
      "gpu-layers", po::value<std::string>()->default_value("auto")->value_name("N|auto|all"),
      "layers of the target that stay on a GPU; the others lie in host memory and are copied to it "
      "in every pass. auto: as many as fit beside the draft and one text's KV")(
      "draft-gpu-layers", po::value<std::string>()->default_value("auto")->value_name("N|auto|all"),
      "the same of the draft; auto: all")(
      "host-memory", po::value<std::string>()->value_name("SIZE"),
      "host memory that the other layers may take; if not given, what is free. On the CPU: memory "
      "of all weights; layers of the target beyond it are read from a file in every pass")(
      "tensor-parallel", po::value<std::string>()->default_value("1")->value_name("N|auto"),
      "GPUs that share the target, each with a part of every layer (NCCL connects them); auto: as "
      "many as its shape can be split over")(
      "draft-tensor-parallel", po::value<std::int32_t>()->default_value(1)->value_name("N"),
      "the same of the draft, which as a rule is faster whole, on the first of them")(
      "devices", po::value<std::string>()->value_name("LIST"),
      "numbers of the GPUs to use, such as 0,1; if not given, from 0 on")(
      "rank-address", po::value<std::string>()->value_name("HOST:PORT"),
      "the target's other parts are in other processes, here or on other hosts, which join at this "
      "address of this machine (coppice rank); this process has one GPU then");
  const po::options_description links = rank_link_options();
  for (const auto& option : links.options()) d.add(option);
  d.add_options()(
      "cost-table", po::value<std::string>()->value_name("FILE"),
      "measured costs, for automatic sizes only: read if the file exists, else written")(
      "no-cost-cache",
      "measure costs anew; without this or --cost-table they are kept in $XDG_CACHE_HOME/coppice "
      "or "
      "~/.cache/coppice, and checked by a few passes");
  return d;
}

po::options_description sampling_options(const UsualValues& usual) {
  po::options_description d("Sampling (filters act in this order)");
  d.add_options()("repetition-penalty",
                  po::value<double>()->default_value(1.0, "1")->value_name("F"),
                  "weakens tokens that the text holds already")(
      "temperature",
      po::value<double>()
          ->default_value(usual.temperature, cat(usual.temperature))
          ->value_name("F"),
      "0: always the most probable token")(
      "top-k", po::value<std::int32_t>()->default_value(0)->value_name("N"),
      "keep the N most probable tokens; 0: all")(
      "top-p", po::value<double>()->default_value(1.0, "1")->value_name("F"),
      "keep the fewest tokens that hold this share")(
      "min-p", po::value<double>()->default_value(0.0, "0")->value_name("F"),
      "keep tokens of at least this share of the best one's probability")(
      "seed", po::value<std::string>()->value_name("N"),
      cat("if not given: ", usual.seed,
          "; the same text again takes --tree-size N or --acceptance coupled, too, as automatic "
          "sizes follow the clock")
          .c_str());
  return d;
}

po::options_description drafting_options(const UsualValues& usual) {
  po::options_description d("Speculation (none of these changes the text's distribution)");
  std::string vector_help =
      "sequoia: acceptance by sibling rank that its tree of --tree-size and --tree-depth is "
      "planned "
      "for: a file of coppice plan, of this pair, or the numbers themselves; if not given, the "
      "shipped pair's at temperature 0.8:";
  for (const double rate : usual_acceptance) vector_help += cat(' ', rate);
  const std::string policies = names_of(all_policies());
  d.add_options()("policy",
                  po::value<std::string>()->default_value("dyspec", usual.policy)->value_name("P"),
                  policies.c_str())(
      "tree-size",
      po::value<std::string>()->default_value("auto", usual.tree_size)->value_name("N|auto"),
      "draft tokens per target pass, at most 2048; chain: its length; dyspec-threshold: the cap; "
      "auto: from measured costs, up to 64, but specinfer 20, sequoia 64, expand-rerank 60")(
      "widths", po::value<std::string>()->value_name("3,2,1"),
      "specinfer: children of each node, by layer; if not given, 1,1,k,1,1,1,1,1 of that size")(
      "tree", po::value<std::string>()->value_name("FILE"),
      "static: JSON like {\"paths\": [[0], [1], [0, 0]]}, each node by its sibling ranks from the "
      "root; sequoia: a grow map, as coppice plan writes it")(
      "acceptance-vector", po::value<std::string>()->value_name("FILE|P,P"), vector_help.c_str())(
      "tree-depth", po::value<std::int32_t>()->default_value(0)->value_name("N"),
      "most layers; 0: sequoia 10, expand-rerank 6")(
      "beam-width", po::value<std::int32_t>()->default_value(0)->value_name("N"),
      "expand-rerank: nodes expanded in a layer, and children of each; 0: 10")(
      "threshold", po::value<double>()->default_value(0.0, "0")->value_name("F"),
      "dyspec-threshold: least estimated acceptance of a position; 0: from measured costs")(
      "draft-temperature", po::value<double>()->value_name("F"),
      "rejection: the temperature at which children are drawn; else how far the draft is believed, "
      "its belief temperature; 0.001 to 100. If not given, the target's, and else learned as the "
      "text is written")("acceptance",
                         po::value<std::string>()
                             ->default_value("auto", usual.acceptance)
                             ->value_name(any_of(acceptances_and_auto)),
                         usual.acceptance_help)(
      "sampled-children", "at temperature 0, draw the children instead of taking the top")(
      "plain-values",
      "dyspec with a tree size, dyspec-threshold: grow by draft probability alone, as its paper "
      "does, not by what the noise and this text tell of acceptance")(
      "lookup", po::value<std::string>()->default_value("auto")->value_name(any_of(all_lookups)),
      "dyspec, dyspec-threshold, chain: also draft what followed where the text's last tokens "
      "stood before, in the prompt and the answer (text) or in earlier answers, too (engine); "
      "works without a draft model. auto: text beside a draft model with automatic sizes, if its "
      "passes are next to free only at temperature 0 and with coupled acceptance");
  return d;
}

std::string text_in(const po::variables_map& values, const char* option) {
  return values.count(option) != 0 ? values[option].as<std::string>() : std::string();
}

std::string written_file_in(const po::variables_map& values, const char* option,
                            const std::string& input) {
  if (values.count(option) == 0) return {};
  std::string file = text_in(values, option);
  if (file == "-") {
    throw_usage(cat("--", option, " '-': name a file; standard output is /dev/stdout"));
  }
  std::error_code ignored;
  if (!input.empty() && fs::equivalent(input, file, ignored)) {
    throw_usage(cat("--", option, " ", quote(file), ": writing it would replace what is read; ",
                    "name another file"));
  }
  return file;
}

std::int32_t count_in(const po::variables_map& values, const char* option, std::int32_t least,
                      std::int32_t most) {
  const auto count = values[option].as<std::int32_t>();
  if (count >= least && count <= most) return count;
  const bool bounded = most < std::numeric_limits<std::int32_t>::max();
  throw_usage(cat("--", option, " ", count, ": use ", least,
                  bounded ? cat(" to ", most) : std::string(" or more")));
}

double progress_seconds(const po::variables_map& values) {
  const double seconds = values["progress"].as<double>();
  if (seconds >= 0.0 && std::isfinite(seconds)) return seconds;
  throw_usage(cat("--progress ", seconds, ": use seconds between two lines, or 0 for none"));
}

bool wants_json(const po::variables_map& values) {
  return choice_in("--format", values["format"].as<std::string>(), {"text", "json"}) == "json";
}

std::int64_t count_or_auto(const std::string& option, const std::string& text, std::int64_t most) {
  if (text == "auto") return 0;
  return number_in<std::int64_t>(option, text, 1, most, ", or auto");
}

std::int32_t tree_size_in(const std::string& option, const std::string& text) {
  if (text == "0") {
    throw_usage(cat("--", option, " 0: use 1 to ", largest_tree_size,
                    ", or auto; plain decoding is --draft none, or policy none"));
  }
  return static_cast<std::int32_t>(count_or_auto(option, text, largest_tree_size));
}

namespace {

/// The words of --draft for a copy of the target in fewer bits.
constexpr std::string_view self = "self:";

/// Throws Error(usage) where the model is stored quantised; `remedy` is in place of the option.
void require_16_bits(const std::string& option, const fs::path& model, WeightRounding rounding,
                     const char* remedy) {
  if (rounding == WeightRounding::keep || !is_stored_quantised(model)) return;
  throw_usage(cat("--", option, name_of(rounding), ": ", quote(model.string()),
                  " is stored quantised, and only weights in 16 or 32 bits are rounded; ", remedy));
}

/// A draft that is no smaller than its target drafts at the price of what it saves.
void tell_of_same_weights(const EngineOptions& options) {
  std::error_code ignored;
  if (options.draft.empty() || !fs::equivalent(options.target, options.draft, ignored)) return;
  if (options.draft_weights != WeightRounding::keep &&
      options.draft_weights != options.target_weights) {
    return;
  }
  const bool has_copies =
      options.target_weights == WeightRounding::keep && !is_stored_quantised(options.target);
  tell(
      cat("the draft is the target itself, in no fewer bits, which is slower than plain decoding; ",
          "use ", has_copies ? "--draft self:q4_k" : "a smaller model of the same tokenizer",
          ", or --draft none"));
}

}  // namespace

void read_roundings(const po::variables_map& values, EngineOptions& options) {
  options.target_weights =
      named("target-weights", text_in(values, "target-weights"), all_weight_roundings);
  options.draft_weights =
      named("draft-weights", text_in(values, "draft-weights"), all_weight_roundings);
  constexpr const char* leave_out = "leave the option out, or name the model in 16 or 32 bits";
  require_16_bits("target-weights ", options.target, options.target_weights, leave_out);
  const std::string draft = options.draft.string();
  if (!draft.starts_with(self)) {
    if (draft.empty() && options.draft_weights != WeightRounding::keep) {
      throw_usage(cat("--draft-weights ", name_of(options.draft_weights),
                      ": there is no draft; leave it out, or name one with --draft"));
    }
    return require_16_bits("draft-weights ", options.draft, options.draft_weights, leave_out);
  }
  if (!values["draft-weights"].defaulted()) {
    throw_usage("--draft self:TYPE says the draft's weights; leave --draft-weights out");
  }
  options.draft_weights = named("draft self", draft.substr(self.size()), all_weight_roundings);
  options.draft = options.target;
  require_16_bits("draft self:", options.target, options.draft_weights,
                  "name a smaller model of its tokenizer as the draft, or the target in 16 or 32 "
                  "bits");
}

EngineOptions engine_options(const po::variables_map& values, const Speculation& speculation) {
  EngineOptions options;
  const bool plain = std::holds_alternative<Plain>(speculation);
  const std::string draft = text_in(values, "draft");
  // What llama.cpp's option of this name takes.
  const bool is_number = !draft.empty() && draft.find_first_not_of("0123456789") == draft.npos;
  std::error_code ignored;
  if (is_number && !fs::exists(draft, ignored)) {
    throw_usage(cat("--draft ", draft, ": it names the draft's folder or GGUF file; --tree-size ",
                    draft, " sets the number of draft tokens"));
  }
  if (values.count("target") == 0) {
    if (values.count("draft") != 0 && draft != "none") {
      throw_usage("--draft was given without --target; give both, or neither for the shipped pair");
    }
    const fs::path stories = find_stories();
    options.target = stories / "target";
    if (values.count("draft") == 0 && !plain) options.draft = stories / "draft";
  } else {
    options.target = text_in(values, "target");
    if (draft != "none" && !plain) options.draft = draft;
  }
  // Settings, templates and weights are all of one file until the next command.
  static std::shared_ptr<const GgufFile> held;
  held.reset();
  held = held_gguf(options.target);
  read_roundings(values, options);
  tell_of_same_weights(options);
  options.device = values.count("device") != 0
                       ? named("device", text_in(values, "device"), all_devices)
                       : DeviceKind::cpu;
  std::string why_not;
  bool gpu_present = false;
  if (options.device == DeviceKind::automatic && !has_cuda_device(&why_not, &gpu_present) &&
      gpu_present) {
    tell(cat("the GPU is passed over: ", why_not));
  }
  if (options.device != DeviceKind::cpu && has_cuda_device()) {
    if (const CudaCode code = cuda_code(); code.card && !code.card->warning.empty()) {
      tell(code.card->warning);
    }
  }
  options.threads = values["threads"].as<int>();
  options.cpu_dtype = named("cpu-dtype", text_in(values, "cpu-dtype"), all_cpu_dtypes);
  options.kv_dtype = named("kv-dtype", text_in(values, "kv-dtype"), all_kv_dtypes);
  options.kv_tokens = count_in(values, "kv-tokens", 0);
  options.max_sequences = 1;
  if (values.count("gpu-memory-fraction") != 0) {
    options.gpu_memory_fraction = values["gpu-memory-fraction"].as<double>();
  }
  read_placement(values, options);
  leave_out_idle_placement(values, options);
  options.cost_table = text_in(values, "cost-table");
  options.cost_cache = values.count("no-cost-cache") == 0;
  options.max_tree_size = tree_room(speculation);
  if (asked_size(speculation) == 0 && !options.draft.empty())
    options.streamed_tree_size = usual_streamed_tree;
  return options;
}

void read_placement(const po::variables_map& values, EngineOptions& options) {
  const auto read = [&](const char* option, auto parse, auto& value) {
    if (values.count(option) != 0) value = parse(option, text_in(values, option));
  };
  read("gpu-memory", bytes_in, options.gpu_memory);
  read("host-memory", bytes_in, options.host_memory);
  read("gpu-layers", layers_in, options.gpu_layers);
  read("draft-gpu-layers", layers_in, options.draft_gpu_layers);
  read("tensor-parallel", ranks_in, options.tensor_parallel);
  read(
      "devices",
      [](const char* option, const std::string& list) {
        return numbers_in<std::int32_t>(option, list, 0);
      },
      options.devices);
  if (values.count("draft-tensor-parallel") != 0) {
    options.draft_tensor_parallel = count_in(values, "draft-tensor-parallel", 1);
  }
  options.rank_address = text_in(values, "rank-address");
  const std::vector<std::string> keys = keys_in("rank-key", text_in(values, "rank-key"));
  if (keys.size() > 1) {
    throw_usage(cat("--rank-key: there are ", keys.size(), " keys in it; leave one"));
  }
  if (!keys.empty()) options.rank_key = keys.front();
  if (values.count("rank-timeout") != 0) {
    options.rank_timeout = values["rank-timeout"].as<double>();
  }
}

void tell_of_plain(const po::variables_map& values, const EngineOptions& engine) {
  if (!engine.draft.empty()) return;
  const Policy policy = named("policy", text_in(values, "policy"), all_policies());
  const bool asked = policy == Policy::none;
  const bool forces = asks_for_constraint(values) && takes(policy, PolicyOption::lookup);
  // These draft without a model.
  if (!asked && (asks_for(lookup_in(values)) || forces)) return;
  const bool refused = text_in(values, "draft") == "none";
  std::vector<std::string> names;
  const auto add = [&](const std::string& name) {
    if (values.count(name) == 0 || values[name].defaulted()) return;
    if (name == "policy" && asked) return;
    if (name == "acceptance") return;  // says which random numbers choose plain text, too
    names.push_back("--" + name);
  };
  const po::options_description drafting = drafting_options();
  for (const auto& option : drafting.options()) add(option->long_name());
  add("cost-table");
  add("no-cost-cache");
  std::string without_effect;
  for (std::size_t i = 0; i < names.size(); ++i) {
    without_effect += cat(i == 0 ? "" : i + 1 < names.size() ? ", " : " and ", names[i]);
  }
  if (!names.empty()) without_effect += names.size() == 1 ? " has no effect" : " have no effect";
  const bool given = values.count("target") == 0 || values.count("draft") != 0;
  if (!asked && !given) {
    tell(
        cat("no draft model was given: plain decoding (--draft MODEL, a smaller one's folder or "
            "GGUF file, speeds it up)",
            names.empty() ? "" : "; ", without_effect));
  } else if (!names.empty()) {
    const char* const why = asked     ? " with --policy none"
                            : refused ? " with --draft none"
                                      : ", as no text is to be speculated on";
    tell(without_effect + why);
  }
}

std::int32_t tree_room(const Speculation& speculation) {
  return std::max(
      {64, asked_size(speculation), static_cast<std::int32_t>(given_size(speculation))});
}

void add_filter_options(po::options_description& options) {
  options.add_options()("repetition-penalty",
                        po::value<double>()->default_value(1.0, "1")->value_name("F"),
                        "as for generate, and so are the next three")(
      "top-k", po::value<std::int32_t>()->default_value(0)->value_name("N"), "0: all tokens")(
      "top-p", po::value<double>()->default_value(1.0, "1")->value_name("F"), "1: all tokens")(
      "min-p", po::value<double>()->default_value(0.0, "0")->value_name("F"), "0: all tokens");
}

void read_filters(const po::variables_map& values, SamplingParams& params) {
  params.repetition_penalty = values["repetition-penalty"].as<double>();
  params.top_k = values["top-k"].as<std::int32_t>();
  params.top_p = values["top-p"].as<double>();
  params.min_p = values["min-p"].as<double>();
}

GenerateOptions sampling_request(const po::variables_map& values) {
  GenerateOptions options;
  options.sampling.temperature = values["temperature"].as<double>();
  read_filters(values, options.sampling);
  if (values.count("seed") != 0) {
    options.seed =
        number_in<std::uint64_t>("seed", values["seed"].as<std::string>(), 0,
                                 std::numeric_limits<std::uint64_t>::max(), ", or leave it out");
  } else {
    options.seed = std::random_device()();
  }
  if (values.count("acceptance") != 0) {
    options.acceptance =
        named("acceptance", values["acceptance"].as<std::string>(), acceptances_and_auto);
  }
  if (values.count("draft-temperature") != 0) {
    options.draft_temperature = values["draft-temperature"].as<double>();
  }
  options.add_bos = values.count("no-bos") == 0;
  return options;
}

void read_tree_options(const po::variables_map& values, PolicyOptions& options) {
  if (values.count("widths") != 0) {
    options.widths = numbers_in<std::int32_t>("widths", values["widths"].as<std::string>(), 1);
  }
  options.tree = text_in(values, "tree");
  options.tree_depth = values["tree-depth"].as<std::int32_t>();
  options.beam_width = values["beam-width"].as<std::int32_t>();
  options.threshold = values["threshold"].as<double>();
}

Lookup lookup_in(const po::variables_map& values) {
  return named("lookup", text_in(values, "lookup"), all_lookups);
}

PolicyOptions policy_options(const po::variables_map& values) {
  PolicyOptions options;
  options.policy = named("policy", values["policy"].as<std::string>(), all_policies());
  options.tree_size = tree_size_in("tree-size", values["tree-size"].as<std::string>());
  read_tree_options(values, options);
  options.plain_values = values.count("plain-values") != 0;
  return options;
}

GenerateOptions generate_options(const po::variables_map& values) {
  GenerateOptions options = sampling_request(values);
  options.sampled_children = values.count("sampled-children") != 0;
  options.speculation = speculation_of(policy_options(values));
  options.lookup = lookup_in(values);
  return options;
}

}  // namespace coppice::cli
