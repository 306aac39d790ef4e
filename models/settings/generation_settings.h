// What a folder recommends for generation.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/settings/setting_file.h"

namespace coppice {

/// The settings of generation_config.json, or of a config.json without one, as transformers'
/// generate() takes them. Token ids are read with the config.
class GenerationSettings {
 public:
  /// Throws Error(failure) for a file that cannot be read. A folder without both has no settings.
  explicit GenerationSettings(const std::filesystem::path& dir);

  /// The name of the file that they are from.
  const std::string& file() const { return file_.name(); }
  /// File and key, for messages; a GGUF file has a key of its own for `key`.
  std::string place_of(std::string_view key) const;
  /// do_sample: without it, neither temperature nor any filter means something.
  bool samples() const;
  /// The number that `key` recommends, with transformers' default of 50 for top_k where it samples;
  /// std::nullopt: none. Throws Error(failure), with `option` as the remedy, if it is none.
  std::optional<double> number(const char* key, const char* option) const;
  std::vector<std::string> stop_strings() const;

  /// Keys of sampling and length that coppice can take over, with their values, and those that
  /// would change the text and which it does not know.
  SettingNotes notes() const;

 private:
  SettingFile file_;
};

}  // namespace coppice
