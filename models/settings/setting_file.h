// One JSON file of a model folder's settings, or what a GGUF file's metadata say in its place.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_file.h"

namespace coppice {

/// A key of a folder's settings, for `coppice info`.
struct Setting {
  std::string file;  ///< its name in the folder, e.g. "tokenizer_config.json", or "metadata"
  std::string name;
  std::string value;  ///< as the file writes it, shortened; empty where only the name counts
};

/// What became of the settings of a folder. Keys that only describe stand in neither list.
struct SettingNotes {
  std::vector<Setting> obeyed;
  std::vector<Setting> not_obeyed;
  std::size_t more = 0;  ///< beyond those in not_obeyed, once shorten() has been called
  /// Leaves the first few of not_obeyed, and of their names what fits on a line: a file may have
  /// any number of unknown keys.
  void shorten();
  void append(SettingNotes other);
};

class SettingFile {
 public:
  /// Reads DIR/name, or makes it of a GGUF file `dir`; a file that is not there is an empty object.
  /// Throws Error(failure) for one that is no JSON object of at most `largest` bytes.
  SettingFile(const std::filesystem::path& dir, const char* name,
              std::uintmax_t largest = std::uintmax_t{64} << 20);

  bool is_there() const { return is_there_; }
  const std::string& name() const { return name_; }    ///< as Setting::file
  const std::string& where() const { return where_; }  ///< the path, for messages
  const std::filesystem::path& folder() const { return folder_; }
  const nlohmann::json& object() const { return *object_; }

  /// The value of a key, or nullptr if the file has none; null is a value.
  const nlohmann::json* find(const std::string& key) const;
  bool has(const std::string& key) const { return find(key) != nullptr; }
  /// Keys in the order of the file, or of a GGUF file's by name: its own, or those of the object in
  /// the key `inside`.
  std::vector<std::string> keys(std::string_view inside = {}) const;
  /// True or false; std::nullopt if the key is missing or null.
  std::optional<bool> flag(const std::string& key) const;
  /// A text; std::nullopt if the key is missing or null.
  std::optional<std::string> text(const std::string& key) const;

  /// Throws Error(failure): "FILE: KEY VALUE is not WANTED; correct it".
  [[noreturn]] void refuse(const std::string& key, const char* wanted) const;

 private:
  struct Content {
    std::optional<JsonObject> object;  ///< std::nullopt: the file is not there
    std::string text;                  ///< that it was parsed from; empty: none
  };
  static Content content(const std::filesystem::path& dir, const char* name,
                         std::uintmax_t largest);
  SettingFile(const std::filesystem::path& dir, const char* name, Content content);

  std::string name_;
  std::filesystem::path folder_;
  std::string where_;
  bool is_there_;
  std::string text_;
  JsonObject object_;
};

}  // namespace coppice
