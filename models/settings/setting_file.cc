#include "models/settings/setting_file.h"

#include <iterator>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "models/gguf/documents.h"

namespace coppice {
namespace {

/// Hears the parser's events and notes the keys of one object: the outermost, or a member's.
class KeyOrder {
 public:
  explicit KeyOrder(std::string_view inside) : inside_(inside) {}
  std::vector<std::string> keys() && { return std::move(keys_); }

  bool key(const std::string& name) {
    if (depth_ == 1) member_ = name;
    const bool wanted = inside_.empty() ? depth_ == 1 : depth_ == 2 && member_ == inside_;
    if (wanted) keys_.push_back(name);
    return true;
  }
  bool start_object(std::size_t) { return ++depth_ > 0; }
  bool end_object() { return --depth_ >= 0; }
  bool start_array(std::size_t) { return ++depth_ > 0; }
  bool end_array() { return --depth_ >= 0; }
  bool null() { return true; }
  bool boolean(bool) { return true; }
  bool number_integer(std::int64_t) { return true; }
  bool number_unsigned(std::uint64_t) { return true; }
  bool number_float(double, const std::string&) { return true; }
  bool string(const std::string&) { return true; }
  bool binary(const nlohmann::json::binary_t&) { return true; }
  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception&) {
    return false;
  }

 private:
  const std::string_view inside_;
  std::string member_;
  std::vector<std::string> keys_;
  int depth_ = 0;
};

}  // namespace

void SettingNotes::append(SettingNotes other) {
  const auto move_all = [](std::vector<Setting>& from, std::vector<Setting>& to) {
    to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
  };
  move_all(other.obeyed, obeyed);
  move_all(other.not_obeyed, not_obeyed);
}

void SettingNotes::shorten() {
  constexpr std::size_t most = 10, longest = 100;
  if (not_obeyed.size() > most) {
    more += not_obeyed.size() - most;
    not_obeyed.resize(most);
  }
  for (Setting& one : not_obeyed) {
    if (one.name.size() > longest) one.name = quote(one.name);
  }
}

SettingFile::SettingFile(const std::filesystem::path& dir, const char* name, std::uintmax_t largest)
    : SettingFile(dir, name, content(dir, name, largest)) {}

SettingFile::Content SettingFile::content(const std::filesystem::path& dir, const char* name,
                                          std::uintmax_t largest) {
  if (is_gguf(dir)) return {gguf_document(*open_gguf(dir), name), ""};
  const std::filesystem::path path = dir / name;
  if (!coppice::is_there(path)) return {};
  std::string text = read_file(path, "", largest);
  auto object = parse_json_object(text, path.string());
  return {std::move(object), std::move(text)};
}

SettingFile::SettingFile(const std::filesystem::path& dir, const char* name, Content content)
    : name_(is_gguf(dir) ? "metadata" : name),
      folder_(dir),
      where_((is_gguf(dir) ? dir : dir / name).string()),
      is_there_(content.object.has_value()),
      text_(std::move(content.text)),
      object_(is_there_ ? std::move(*content.object) : JsonObject(nlohmann::json::object())) {}

std::vector<std::string> SettingFile::keys(std::string_view inside) const {
  if (text_.empty()) {
    const nlohmann::json* const object = inside.empty() ? &*object_ : find(std::string(inside));
    std::vector<std::string> keys;
    if (object == nullptr || !object->is_object()) return keys;
    for (const auto& [key, value] : object->items()) keys.push_back(key);
    return keys;
  }
  KeyOrder order(inside);
  nlohmann::json::sax_parse(text_, &order);
  return std::move(order).keys();
}

const nlohmann::json* SettingFile::find(const std::string& key) const {
  const auto found = object_->find(key);
  return found == object_->end() ? nullptr : &*found;
}

std::optional<bool> SettingFile::flag(const std::string& key) const {
  const nlohmann::json* const value = find(key);
  if (value == nullptr || value->is_null()) return std::nullopt;
  if (!value->is_boolean()) refuse(key, "true or false");
  return value->get<bool>();
}

std::optional<std::string> SettingFile::text(const std::string& key) const {
  const nlohmann::json* const value = find(key);
  if (value == nullptr || value->is_null()) return std::nullopt;
  if (!value->is_string()) refuse(key, "a text");
  return value->get<std::string>();
}

void SettingFile::refuse(const std::string& key, const char* wanted) const {
  throw_failure(
      cat(where(), ": ", key, " ", shown(*find(key)), " is not ", wanted, "; correct it"));
}

}  // namespace coppice
