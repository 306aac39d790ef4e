#include "models/gguf/sampling_metadata.h"

#include <cstdint>
#include <utility>

#include "base/error.h"
#include "models/settings/generation_settings.h"

namespace coppice {

SamplingMetadata sampling_metadata(const std::filesystem::path& dir) {
  constexpr std::pair<const char*, const char*> names[] = {
      {"temperature", "general.sampling.temp"},
      {"top_p", "general.sampling.top_p"},
      {"min_p", "general.sampling.min_p"},
      {"repetition_penalty", "general.sampling.penalty_repeat"}};
  const GenerationSettings settings(dir);
  const char* const remedy = "correct the file";
  SamplingMetadata out;
  if (settings.samples()) {
    for (const auto& [name, key] : names) {
      if (const auto number = settings.number(name, remedy)) {
        out.values.emplace_back(key, static_cast<float>(*number));
      }
    }
    if (const auto number = settings.number("top_k", remedy)) {
      out.values.emplace_back("general.sampling.top_k", static_cast<std::int32_t>(*number));
    }
  }
  if (!settings.samples() && settings.number("repetition_penalty", remedy).value_or(1.0) != 1.0) {
    // With any key of general.sampling readers sample.
    out.lost.push_back(cat("repetition_penalty of ", settings.file()));
  }
  if (!settings.stop_strings().empty()) {
    out.lost.push_back(cat("stop_strings of ", settings.file()));
  }
  if (settings.number("max_new_tokens", remedy)) {
    out.lost.push_back(cat("max_new_tokens of ", settings.file()));
  }
  return out;
}

}  // namespace coppice
