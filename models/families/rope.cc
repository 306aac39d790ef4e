#include <algorithm>
#include <cmath>
#include <string>

#include "base/error.h"
#include "models/families/family.h"
#include "models/rope_table.h"

namespace coppice {
namespace {

/// YaRN's scaling of scores (Peng et al., 2023), applied to cosines and sines.
double yarn_scale(double factor, double mscale = 1.0) {
  return factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

void read_llama3(const Fields& settings, RopeSpec& rope) {
  rope.kind = RopeSpec::Kind::llama3;
  if (settings.has("frequency_factors")) {  // a GGUF file has the numbers' result
    const auto half = static_cast<std::size_t>(rope.rotated / 2);
    rope.frequency_factors = settings.positives("frequency_factors", half);
    rope.factor = *std::max_element(rope.frequency_factors.begin(), rope.frequency_factors.end());
    return;
  }
  rope.factor = settings.positive("factor");
  rope.low_freq_factor = settings.positive("low_freq_factor");
  rope.high_freq_factor = settings.positive("high_freq_factor");
  if (rope.high_freq_factor <= rope.low_freq_factor) {
    settings.refuse("high_freq_factor", "above low_freq_factor");
  }
}

void read_yarn(const Fields& settings, ModelConfig& config, RopeSpec& rope) {
  rope.kind = RopeSpec::Kind::yarn;
  const auto original = static_cast<double>(rope.original_context);
  rope.factor = settings.positive("factor", config.context_length / original);
  rope.beta_fast = settings.positive("beta_fast", 32.0);
  rope.beta_slow = settings.positive("beta_slow", 1.0);
  rope.truncate = settings.boolean("truncate", true);
  if (rope.theta <= 1.0) {
    throw_failure(cat(settings.where(), ": rope_theta is ", rope.theta,
                      ", but must be above 1 for YaRN; correct the file"));
  }
  // 0 counts as absent, as in transformers.
  const auto given = [&](const char* name) {
    const nlohmann::json* value = settings.find(name);
    return value == nullptr || *value == 0 ? 0.0 : settings.positive(name);
  };
  const double mscale = given("mscale"), mscale_all_dim = given("mscale_all_dim");
  const double usual =
      mscale > 0.0 && mscale_all_dim > 0.0
          ? yarn_scale(rope.factor, mscale) / yarn_scale(rope.factor, mscale_all_dim)
          : yarn_scale(rope.factor);
  rope.attention_factor = settings.positive("attention_factor", usual);
  // Files that YaRN was added to by hand keep the length it stretches.
  const double stretched = std::min(rope.factor * original, static_cast<double>(most_context));
  config.context_length = std::max(config.context_length, static_cast<std::int32_t>(stretched));
}

void read_longrope(const Fields& settings, const ModelConfig& config, RopeSpec& rope) {
  rope.kind = RopeSpec::Kind::longrope;
  const auto half = static_cast<std::size_t>(rope.rotated / 2);
  rope.short_factors = settings.positives("short_factor", half);
  rope.long_factors = settings.positives("long_factor", half);
  const auto original = static_cast<double>(rope.original_context);
  const double factor = settings.positive("factor", config.context_length / original);
  const double usual =
      factor <= 1.0 ? 1.0 : std::sqrt(1.0 + std::log(factor) / std::log(std::max(2.0, original)));
  rope.attention_factor = settings.positive("attention_factor", usual);
}

/// Tables of frequencies are in float: what is a number in the file may be none there.
void require_frequencies(const Fields& settings, const RopeSpec& rope) {
  const auto is_positive = [](double number) {
    const auto value = static_cast<float>(number);
    return std::isfinite(value) && value > 0.0f;
  };
  bool good = is_positive(rope.attention_factor);
  for (const std::int64_t positions : {std::int64_t{1}, rope.original_context + 1}) {  // LongRoPE's
    for (const float frequency : rope_frequencies(rope, static_cast<std::int32_t>(positions))) {
      good = good && is_positive(double{frequency});
    }
  }
  if (good) return;
  throw_failure(cat(settings.where(), ": with rope_theta ", rope.theta,
                    " and these factors rotary frequencies are too large or too small for F32; "
                    "correct the file or fetch it again"));
}

}  // namespace

void add_rope(const Fields& settings, const Fields& fields, ModelConfig& config, double theta) {
  for (const auto& [key, value] : settings.object().items()) {
    if (!value.is_object()) continue;
    config.unsupported.push_back(cat("rotary settings per kind of layer (", quote(key), ")"));
    return;
  }
  RopeSpec rope;
  rope.theta = settings.positive("rope_theta", theta);
  const double part =
      settings.positive("partial_rotary_factor", fields.positive("partial_rotary_factor", 1.0));
  rope.rotated = static_cast<std::int32_t>(std::min(1.0, part) * config.head_dim);
  if (rope.rotated < 2 || rope.rotated % 2 != 0) {
    throw_failure(cat(fields.where(), ": rotary embedding of ", rope.rotated, " of a head's ",
                      config.head_dim,
                      " elements: must be even and at least 2; correct head_dim or "
                      "partial_rotary_factor"));
  }
  // Phi-3 has the original length beside the other settings.
  const char* const original = "original_max_position_embeddings";
  rope.original_context = (fields.has(original) ? fields : settings)
                              .integer(original, 1, most_context, config.context_length);
  const std::string kind = settings.text("rope_type", settings.text("type", "default"));
  if (kind == "linear") {
    rope.kind = RopeSpec::Kind::linear;
    rope.factor = settings.positive("factor");
  } else if (kind == "llama3") {
    read_llama3(settings, rope);
  } else if (kind == "longrope" || kind == "su" ||
             (kind == "yarn" && settings.has("long_factor"))) {
    read_longrope(settings, config, rope);  // Phi-3 once called it su and yarn
  } else if (kind == "yarn") {
    read_yarn(settings, config, rope);
  } else if (kind == "dynamic") {
    config.unsupported.push_back(
        "rotary scaling of type \"dynamic\": cached keys cannot follow frequencies that change "
        "with "
        "the length of the text");
  } else if (kind != "default") {
    config.unsupported.push_back(cat("rotary scaling of type ", quote(kind),
                                     " (coppice knows linear, llama3, yarn and longrope)"));
  }
  require_frequencies(settings, rope);
  config.ropes.push_back(std::move(rope));
}

void add_rope(const Fields& fields, ModelConfig& config, double usual_theta) {
  const double theta = fields.positive("rope_theta", usual_theta);
  // transformers 5 writes rope_parameters, which holds theta too; earlier ones rope_scaling.
  for (const char* name : {"rope_scaling", "rope_parameters"}) {
    const nlohmann::json* value = fields.find(name);
    if (value == nullptr || value->empty()) continue;
    return add_rope(fields.inside(name), fields, config, theta);
  }
  static const nlohmann::json none = nlohmann::json::object();
  add_rope(Fields(none, fields.where()), fields, config, theta);
}

}  // namespace coppice
