// A folder's chat template, and the texts of special tokens that it may write.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "models/settings/setting_file.h"

namespace coppice {

struct TemplateSettings {
  std::string source;
  std::string where;  ///< for messages
  /// "bos_token" and the like, by name.
  std::vector<std::pair<std::string, std::string>> special_tokens;
};

/// Reads DIR/chat_template.jinja, the default one, and DIR/additional_chat_templates/NAME.jinja;
/// only in a folder with neither, chat_template in tokenizer_config.json: a text, or a list of
/// named ones. `name` empty: "default", or the only one. Throws Error(failure) if there is none of
/// that name: a template is never guessed.
TemplateSettings read_template_settings(const std::filesystem::path& dir,
                                        const std::string& name = "");

/// Names the templates that the folder has, and those that others stand in for.
SettingNotes template_notes(const std::filesystem::path& dir);

}  // namespace coppice
