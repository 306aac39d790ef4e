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

SettingFile::SettingFile(const std::filesystem::path& dir, const char* name, std::uintmax_t largest)
    : SettingFile(dir, name,
                  is_gguf(dir) ? gguf_document(*open_gguf(dir), name)
                  : coppice::is_there(dir / name)
                      ? std::optional(read_file(dir / name, "", largest))
                      : std::nullopt) {}

SettingFile::SettingFile(const std::filesystem::path& dir, const char* name,
                         std::optional<std::string> text)
    : name_(is_gguf(dir) ? "metadata" : name),
      folder_(dir),
      where_((is_gguf(dir) ? dir : dir / name).string()),
      is_there_(text.has_value()),
      text_(text.value_or("{}")),
      object_(parse_json_object(text_, where_)) {}

std::vector<std::string> SettingFile::keys(std::string_view inside) const {
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
