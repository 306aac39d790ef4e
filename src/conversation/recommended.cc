#include "conversation/recommended.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <type_traits>

#include "base/error.h"
#include "models/gguf/gguf_file.h"

namespace coppice::conversation {

std::vector<std::string> take_recommended(const std::filesystem::path& target,
                                          const std::function<bool(const char* option)>& given,
                                          GenerateOptions& request) {
  return take_recommended(target, GenerationSettings(target), given, request);
}

std::vector<std::string> take_recommended(const std::filesystem::path& target,
                                          const GenerationSettings& settings,
                                          const std::function<bool(const char* option)>& given,
                                          GenerateOptions& request) {
  std::string taken;
  const auto take = [&](const std::string& what) { taken += cat(taken.empty() ? "" : ", ", what); };
  const auto open = [&](const char* option) { return !given(option); };
  // What no option takes is the file's mistake, not the command's.
  const auto set = [&](const char* key, const char* option, const auto& member, double number) {
    GenerateOptions alone;
    alone.max_new_tokens = std::numeric_limits<std::int32_t>::max();  // what bounds min_new_tokens
    auto& value = member(alone);
    value = static_cast<std::remove_reference_t<decltype(value)>>(number);
    try {
      alone.validate();
    } catch (const Error& error) {
      throw_failure(
          cat(settings.place_of(key), ": ", error.what(), "; correct it or give --", option));
    }
    member(request) = value;
  };
  const auto number = [&](const char* key, const char* option, const auto& member,
                          bool matters = true) {
    if (!open(option)) return;
    const std::optional<double> found = settings.number(key, option);
    if (!found) return;
    set(key, option, member, *found);
    if (matters) take(cat(option, " ", member(request)));
  };
  // As transformers: without sampling the other settings mean nothing.
  if (settings.samples()) {
    if (open("temperature")) {
      set(
          "temperature", "temperature",
          [](GenerateOptions & of) -> auto& { return of.sampling.temperature; },
          settings.number("temperature", "temperature").value_or(1.0));
      take(cat("temperature ", request.sampling.temperature));
    }
    const bool draws = request.sampling.temperature != 0.0;
    number(
        "top_k", "top-k", [](GenerateOptions & of) -> auto& { return of.sampling.top_k; }, draws);
    number(
        "top_p", "top-p", [](GenerateOptions & of) -> auto& { return of.sampling.top_p; }, draws);
    number(
        "min_p", "min-p", [](GenerateOptions & of) -> auto& { return of.sampling.min_p; }, draws);
  }
  number(
      "repetition_penalty", "repetition-penalty",
      [](GenerateOptions & of) -> auto& { return of.sampling.repetition_penalty; });
  number(
      "max_new_tokens", "max-new-tokens",
      [](GenerateOptions & of) -> auto& { return of.max_new_tokens; });
  number(
      "min_new_tokens", "min-new-tokens",
      [](GenerateOptions & of) -> auto& { return of.min_new_tokens; }, false);
  if (open("min-new-tokens")) {
    request.min_new_tokens = std::min(request.min_new_tokens, request.max_new_tokens);
    if (request.min_new_tokens > 0) take(cat("min-new-tokens ", request.min_new_tokens));
  }
  if (open("stop")) {
    const std::vector<std::string> texts = settings.stop_strings();
    if (!texts.empty()) request.stop = texts;
    for (const std::string& text : texts) take(cat("stop ", quote(text)));
  }
  std::vector<std::string> lines;
  const std::string file = is_gguf(target) ? target.filename().string() : settings.file();
  if (!taken.empty()) lines.push_back(cat(file, ": ", taken));
  std::string ignored;
  SettingNotes notes = settings.notes();
  notes.shorten();
  for (const Setting& one : notes.not_obeyed) {
    ignored += cat(ignored.empty() ? "" : ", ", printable(one.name));
  }
  if (notes.more > 0) ignored += cat(", and ", notes.more, " more");
  if (!ignored.empty()) {
    lines.push_back(cat(file, ": not obeyed, since coppice does not know: ", ignored));
  }
  return lines;
}

}  // namespace coppice::conversation
