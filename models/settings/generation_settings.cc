#include "models/settings/generation_settings.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string_view>

#include "base/error.h"
#include "models/gguf/documents.h"

namespace coppice {
namespace {

using Json = nlohmann::json;

SettingFile generation_file(const std::filesystem::path& dir) {
  SettingFile own(dir, "generation_config.json", std::uintmax_t{4} << 20);
  if (own.is_there()) return own;
  return SettingFile(dir, "config.json", std::uintmax_t{4} << 20);
}

struct Key {
  std::string_view name;
  bool with_samples = false;  ///< means something only where it samples
  double neutral = 0.0;       ///< the number that changes nothing
};

constexpr Key obeyed_keys[] = {{"temperature", true, 1.0},
                               {"top_k", true, 0.0},
                               {"top_p", true, 1.0},
                               {"min_p", true, 0.0},
                               {"repetition_penalty", false, 1.0},
                               {"max_new_tokens", false, -1.0},
                               {"min_new_tokens", false, 0.0}};

/// Keys that change what generate() writes, or how long, and which coppice does not know.
constexpr Key unknown_keys[] = {{"typical_p", true, 1.0},
                                {"epsilon_cutoff", true},
                                {"eta_cutoff", true},
                                {"top_h", true, -1.0},
                                {"max_length", false, -1.0},
                                {"min_length"},
                                {"max_time", false, -1.0},
                                {"num_beams", false, 1.0},
                                {"num_beam_groups", false, 1.0},
                                {"num_return_sequences", false, 1.0},
                                {"penalty_alpha"},
                                {"no_repeat_ngram_size"},
                                {"bad_words_ids"},
                                {"force_words_ids"},
                                {"constraints"},
                                {"forced_bos_token_id", false, -1.0},
                                {"forced_eos_token_id", false, -1.0},
                                {"exponential_decay_length_penalty"},
                                {"suppress_tokens"},
                                {"begin_suppress_tokens"},
                                {"sequence_bias"},
                                {"token_healing"},
                                {"guidance_scale", false, 1.0},
                                {"watermarking_config"},
                                {"dola_layers"}};

/// Keys that describe, choose between ways to the same text, or are for encoders alone.
constexpr std::string_view silent_keys[] = {"do_sample",
                                            "stop_strings",
                                            "bos_token_id",
                                            "eos_token_id",
                                            "pad_token_id",
                                            "decoder_start_token_id",
                                            "transformers_version",
                                            "length_penalty",
                                            "early_stopping",
                                            "diversity_penalty",
                                            "remove_invalid_values",
                                            "renormalize_logits",
                                            "encoder_repetition_penalty",
                                            "encoder_no_repeat_ngram_size",
                                            "low_memory",
                                            "prefill_chunk_size",
                                            "prompt_lookup_num_tokens",
                                            "max_matching_ngram_size",
                                            "is_assistant",
                                            "target_lookbehind",
                                            "return_dict_in_generate",
                                            "continuous_batching_config",
                                            "disable_compile",
                                            "compile_config",
                                            "speculation_type",
                                            "use_mtp",
                                            "auto_map",
                                            "trust_remote_code",
                                            "chat_format",
                                            "_from_model_config",
                                            "_commit_hash"};
constexpr std::string_view silent_beginnings[] = {"assistant_", "num_assistant_", "output_",
                                                  "cache_",     "use_cache",      "max_cache_"};

bool says_nothing(const Json& value, double neutral) {
  if (value.is_null() || value == false) return true;
  if (value.is_structured()) return value.empty();
  return value.is_number() && value.get<double>() == neutral;
}

bool is_silent(std::string_view name) {
  return std::find(std::begin(silent_keys), std::end(silent_keys), name) != std::end(silent_keys) ||
         std::any_of(std::begin(silent_beginnings), std::end(silent_beginnings),
                     [&](std::string_view begin) { return name.starts_with(begin); });
}

}  // namespace

GenerationSettings::GenerationSettings(const std::filesystem::path& dir)
    : file_(generation_file(dir)) {}

std::string GenerationSettings::place_of(std::string_view key) const {
  if (is_gguf(file_.folder())) {
    for (const auto& [metadata, name] : gguf_sampling_keys) {
      if (name == key) key = metadata;
    }
  }
  return cat(file_.where(), ": ", key);
}

bool GenerationSettings::samples() const {
  const Json* const value = file_.find("do_sample");
  return value != nullptr && value->is_boolean() && value->get<bool>();
}

std::optional<double> GenerationSettings::number(const char* key, const char* option) const {
  constexpr double usual_top_k = 50.0;
  const Json* const value = file_.find(key);
  if (value == nullptr || value->is_null()) {
    if (samples() && std::string_view(key) == "top_k") return usual_top_k;
    return std::nullopt;
  }
  if (!value->is_number() || std::abs(value->get<double>()) > 1e9) {
    throw_failure(
        cat(place_of(key), " ", shown(*value), " is no number; correct it or give --", option));
  }
  return value->get<double>();
}

std::vector<std::string> GenerationSettings::stop_strings() const {
  const Json* const value = file_.find("stop_strings");
  std::vector<std::string> texts;
  if (value == nullptr) return texts;
  for (const Json& stop : value->is_array() ? *value : Json::array({*value})) {
    if (stop.is_string() && !stop.get_ref<const std::string&>().empty()) texts.push_back(stop);
  }
  return texts;
}

SettingNotes GenerationSettings::notes() const {
  SettingNotes notes;
  for (const Key& key : obeyed_keys) {
    const Json* const value = file_.find(std::string(key.name));
    const bool counts = samples() || !key.with_samples;
    if (counts && value != nullptr && !value->is_null()) {
      notes.obeyed.push_back({file(), std::string(key.name), shown(*value)});
    } else if (samples() && key.name == "top_k") {
      notes.obeyed.push_back({file(), "top_k", "50 (transformers' own)"});
    }
  }
  if (samples()) notes.obeyed.push_back({file(), "do_sample", "true"});
  const Json* const stops = file_.find("stop_strings");
  if (!stop_strings().empty()) {
    notes.obeyed.push_back({file(), "stop_strings", shown(*stops)});
  } else if (stops != nullptr && !says_nothing(*stops, -1.0) && *stops != "") {
    notes.not_obeyed.push_back({file(), "stop_strings", ""});
  }
  for (const Key& key : unknown_keys) {
    const Json* const value = file_.find(std::string(key.name));
    if (value == nullptr || says_nothing(*value, key.neutral)) continue;
    if (samples() || !key.with_samples) {
      notes.not_obeyed.push_back({file(), std::string(key.name), ""});
    }
  }
  if (file() == "config.json") return notes;  // its other keys are no generation's
  for (const auto& [name, value] : file_.object().items()) {
    const auto is = [&](const Key& key) { return key.name == name; };
    const bool known = std::any_of(std::begin(obeyed_keys), std::end(obeyed_keys), is) ||
                       std::any_of(std::begin(unknown_keys), std::end(unknown_keys), is);
    if (known || is_silent(name) || value.is_null()) continue;
    notes.not_obeyed.push_back({file(), name, ""});
  }
  return notes;
}

}  // namespace coppice
