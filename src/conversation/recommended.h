// What a model's own files recommend for its generations.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "coppice.h"
#include "models/settings/generation_settings.h"

namespace coppice::conversation {

/// Sets what generation_config.json of the folder, or the GGUF file, recommends and nobody gave:
/// temperature, top-k, top-p, min-p, repetition penalty, most and fewest new tokens (these at most
/// the request's most), stop texts. `given` says it of an option by its command-line name, such as
/// "top-k". Returns lines to tell: what was taken
/// and matters, and the names of settings that are not obeyed. Throws Error(failure) for a file
/// that cannot be read.
std::vector<std::string> take_recommended(const std::filesystem::path& target,
                                          const std::function<bool(const char* option)>& given,
                                          GenerateOptions& request);
/// The same of a target whose settings were read.
std::vector<std::string> take_recommended(const std::filesystem::path& target,
                                          const GenerationSettings& settings,
                                          const std::function<bool(const char* option)>& given,
                                          GenerateOptions& request);

}  // namespace coppice::conversation
