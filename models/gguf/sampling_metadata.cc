#include "models/gguf/sampling_metadata.h"

#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "models/gguf/documents.h"
#include "models/settings/generation_settings.h"

namespace coppice {

SamplingMetadata sampling_metadata(const std::filesystem::path& dir) {
  const GenerationSettings settings(dir);
  const char* const remedy = "correct the file";
  SamplingMetadata out;
  if (settings.samples()) {
    for (const auto& [key, name] : gguf_sampling_keys) {
      const auto number = settings.number(name, remedy);
      if (!number) continue;
      const bool is_count = std::string_view(name) == "top_k";
      out.values.emplace_back(key, is_count ? GgufValue(static_cast<std::int32_t>(*number))
                                            : GgufValue(static_cast<float>(*number)));
    }
  }
  if (!settings.samples() && settings.number("repetition_penalty", remedy).value_or(1.0) != 1.0) {
    // With any key of general.sampling readers sample.
    out.lost.push_back(
        cat("repetition_penalty of ", settings.file(), "; give it as --repetition-penalty"));
  }
  if (!settings.stop_strings().empty()) {
    out.lost.push_back(cat("stop_strings of ", settings.file(), "; give each as --stop TEXT"));
  }
  if (settings.number("max_new_tokens", remedy)) {
    out.lost.push_back(cat("max_new_tokens of ", settings.file(), "; give it as --max-new-tokens"));
  }
  if (settings.number("min_new_tokens", remedy).value_or(0.0) != 0.0) {
    out.lost.push_back(cat("min_new_tokens of ", settings.file(), "; give it as --min-new-tokens"));
  }
  return out;
}

}  // namespace coppice
