#include "chat/model_template.h"

#include <ctime>

#include "base/error.h"
#include "base/files.h"
#include "base/json_file.h"

namespace coppice::chat {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::uintmax_t largest_config = std::uintmax_t{64} << 20;

std::string named_template(const Json& list, const std::string& name, const std::string& where) {
  std::string known;
  for (const Json& entry : list) {
    if (!entry.is_object() || !entry.contains("name") || !entry.contains("template") ||
        !entry["name"].is_string() || !entry["template"].is_string()) {
      throw_failure(cat(where, ": chat_template is a list, but ", shown(entry),
                        " is no name and template; fetch the file again"));
    }
    const std::string entry_name = entry["name"];
    if (entry_name == (name.empty() ? "default" : name) || (name.empty() && list.size() == 1)) {
      return entry["template"];
    }
    known += (known.empty() ? "" : ", ") + entry_name;
  }
  throw_failure(cat(where, ": it has no chat template of the name ",
                    quote(name.empty() ? "default" : name), "; use one of ", known));
}

// A token as its text, or as an object that holds it.
std::string token_text(const Json& config, const char* name) {
  if (!config.contains(name)) return "";
  const Json& value = config[name];
  if (value.is_string()) return value;
  if (value.is_object() && value.contains("content") && value["content"].is_string()) {
    return value["content"];
  }
  return "";
}

}  // namespace

Value message(const std::string& role, const std::string& content) {
  return Value::dict({{Value(std::string("role")), Value(Text(role, true))},
                      {Value(std::string("content")), Value(Text(content, true))}});
}

ModelTemplate ModelTemplate::load(const fs::path& dir, const std::string& name) {
  const fs::path own = dir / "chat_template.jinja", config_file = dir / "tokenizer_config.json";
  const JsonObject config = is_there(config_file) ? read_json_object(config_file, largest_config)
                                                  : JsonObject(Json::object());
  std::string source, where;
  if (is_there(own) && !name.empty() && !config->contains("chat_template")) {
    throw_failure(cat(quote(own.string()),
                      ": the folder has this one chat template and none of the name ", quote(name),
                      "; leave --template-name out"));
  }
  if (is_there(own) && name.empty()) {
    where = own.string();
    source = read_file(own, "", std::uintmax_t{1} << 20);
  } else if (config->contains("chat_template")) {
    where = config_file.string();
    const Json& value = (*config)["chat_template"];
    if (value.is_string()) {
      source = value;
    } else if (value.is_array()) {
      source = named_template(value, name, where);
    } else {
      throw_failure(cat(where, ": chat_template must be a text or a list, not ", shown(value),
                        "; fetch the file again"));
    }
  } else {
    throw_failure(cat(quote(dir.string()),
                      ": it has no chat template (chat_template.jinja, or chat_template in "
                      "tokenizer_config.json); add the one that it was trained with, or use "
                      "--no-template for raw text"));
  }
  ModelTemplate out(ChatTemplate::parse(source, where));
  for (const char* token : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token",
                            "cls_token", "mask_token"}) {
    const std::string text = token_text(*config, token);
    if (!text.empty()) out.special_tokens_.emplace_back(Value(std::string(token)), Value(text));
  }
  return out;
}

Text ModelTemplate::render(const Value& messages, bool add_generation_prompt,
                           const std::vector<std::pair<std::string, Value>>& more) const {
  std::vector<std::pair<Value, Value>> context = special_tokens_;
  const auto add = [&](const std::string& name, const Value& value) {
    context.emplace_back(Value(name), value);
  };
  for (const auto& [name, value] : more) add(name, value);  // the first of a name counts
  add("messages", messages);
  add("add_generation_prompt", Value(add_generation_prompt));
  add("tools", Value());
  add("documents", Value());
  return template_.render(Value::dict(std::move(context)), std::time(nullptr));
}

}  // namespace coppice::chat
