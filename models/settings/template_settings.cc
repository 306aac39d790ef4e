#include "models/settings/template_settings.h"

#include <algorithm>
#include <optional>
#include <system_error>

#include "base/error.h"
#include "base/files.h"
#include "models/gguf/gguf_file.h"
#include "models/settings/tokenizer_settings.h"

namespace coppice {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* own_file = "chat_template.jinja";
constexpr const char* more_folder = "additional_chat_templates";
constexpr std::string_view default_name = "default";

struct Named {
  std::string name;  ///< empty: the only one, which has none
  std::string source;
  std::string where;
};

/// Templates that are files of their own: paths in place of sources.
std::vector<Named> template_files(const fs::path& dir) {
  std::vector<Named> found;
  if (is_there(dir / own_file))
    found.push_back({std::string(default_name), "", (dir / own_file).string()});
  std::error_code status;
  std::vector<Named> more;
  for (fs::directory_iterator entry(dir / more_folder, status), end; !status && entry != end;
       entry.increment(status)) {
    const fs::path path = entry->path();
    if (path.extension() == ".jinja") more.push_back({path.stem().string(), "", path.string()});
  }
  std::sort(more.begin(), more.end(),
            [](const Named& one, const Named& other) { return one.name < other.name; });
  for (Named& one : more) {
    std::erase_if(found, [&](const Named& other) { return other.name == one.name; });
    found.push_back(std::move(one));
  }
  return found;
}

std::vector<Named> config_templates(const SettingFile& config) {
  const Json* const value = config.find("chat_template");
  if (value == nullptr || value->is_null()) return {};
  const std::string where = config.where();
  if (value->is_string()) return {{"", *value, where}};
  if (!value->is_array()) {
    throw_failure(cat(where, ": chat_template must be a text or a list, not ", shown(*value),
                      "; fetch the file again"));
  }
  std::vector<Named> found;
  for (const Json& entry : *value) {
    if (!entry.is_object() || !entry.contains("name") || !entry.contains("template") ||
        !entry["name"].is_string() || !entry["template"].is_string()) {
      throw_failure(cat(where, ": chat_template is a list, but ", shown(entry),
                        " is no name and template; fetch the file again"));
    }
    found.push_back({entry["name"], entry["template"], where});
  }
  return found;
}

Named chosen(const fs::path& dir, std::vector<Named> all, const std::string& name) {
  if (all.empty()) {
    throw_failure(cat(quote(dir.string()), ": it has no chat template (",
                      is_gguf(dir) ? "tokenizer.chat_template"
                                   : "chat_template.jinja, or chat_template in "
                                     "tokenizer_config.json",
                      "); add the one that it was trained with, or use "
                      "--no-template for raw text"));
  }
  const std::string wanted = name.empty() ? std::string(default_name) : name;
  std::string known;
  for (Named& one : all) {
    const bool only = name.empty() && all.size() == 1;
    if (only || (one.name == wanted && !one.name.empty())) return std::move(one);
    known += (known.empty() ? "" : ", ") + one.name;
  }
  if (all.size() == 1 && (all.front().name.empty() || all.front().name == default_name)) {
    throw_failure(cat(quote(all.front().where),
                      ": it has this one chat template and none of the name ", quote(name),
                      "; leave --template-name out"));
  }
  throw_failure(cat(quote(dir.string()), ": it has no chat template of the name ", quote(wanted),
                    "; use one of ", known));
}

}  // namespace

TemplateSettings read_template_settings(const fs::path& dir, const std::string& name) {
  std::vector<Named> all = template_files(dir);
  const bool files = !all.empty();
  if (!files) all = config_templates(SettingFile(dir, "tokenizer_config.json"));
  Named one = chosen(dir, std::move(all), name);
  if (files) one.source = read_file(one.where, "", std::uintmax_t{1} << 20);
  TokenizerSettings tokens = read_tokenizer_settings(dir);
  return {std::move(one.source), std::move(one.where), std::move(tokens.named)};
}

SettingNotes template_notes(const fs::path& dir) {
  SettingNotes notes;
  const std::vector<Named> files = template_files(dir);
  for (const Named& one : files) {
    const fs::path path = one.where;
    const bool own = path == dir / own_file;
    notes.obeyed.push_back({own ? own_file : cat(more_folder, "/", path.filename().string()),
                            "chat_template", one.name});
  }
  const SettingFile config(dir, "tokenizer_config.json");
  const Json* const value = config.find("chat_template");
  if (value == nullptr || value->is_null()) return notes;
  if (!files.empty()) {
    const bool same = files.size() == 1 && value->is_string() &&
                      read_file(files.front().where, "", std::uintmax_t{1} << 20) ==
                          value->get_ref<const std::string&>();
    if (!same) notes.not_obeyed.push_back({config.name(), "chat_template", ""});
    return notes;
  }
  for (const Named& one : config_templates(config)) {
    notes.obeyed.push_back(
        {config.name(), "chat_template", one.name.empty() ? std::string(default_name) : one.name});
  }
  return notes;
}

}  // namespace coppice
