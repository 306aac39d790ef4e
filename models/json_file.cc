#include "models/json_file.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>
#include <vector>

#include "base/error.h"

namespace coppice {
namespace {

constexpr int deepest_nesting = 64;

}  // namespace

nlohmann::json parse_json_object(std::string_view text, const std::string& file) {
  using Json = nlohmann::json;
  // The parser takes a NUL byte for the end of its input.
  if (const auto nul = text.find('\0'); nul != text.npos) {
    throw_failure(cat(file, ": not JSON: NUL byte at ", nul, "; fetch the file again"));
  }
  std::vector<std::set<std::string>> keys;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
    switch (event) {
      case Json::parse_event_t::array_start:
      case Json::parse_event_t::object_start:
        if (depth >= deepest_nesting) {
          throw_failure(
              cat(file, ": nested deeper than ", deepest_nesting, " levels; fetch the file again"));
        }
        if (event == Json::parse_event_t::object_start) keys.emplace_back();
        break;
      case Json::parse_event_t::key: {
        const auto& key = parsed.get_ref<const std::string&>();
        if (!keys.back().insert(key).second) {
          throw_failure(cat(file, ": key ", quote(key), " appears twice; remove one"));
        }
        break;
      }
      case Json::parse_event_t::object_end:
        keys.pop_back();
        break;
      default:
        break;
    }
    return true;
  };
  try {
    Json value = Json::parse(text.begin(), text.end(), watch);
    if (!value.is_object()) {
      throw_failure(cat(file, ": holds a JSON ", value.type_name(), ", not an object"));
    }
    return value;
  } catch (const Json::parse_error& error) {
    throw_failure(cat(file, ": not valid JSON at byte ", error.byte, "; fetch the file again"));
  } catch (const Json::exception&) {
    throw_failure(cat(file, ": holds a number out of range; fetch the file again"));
  }
}

nlohmann::json read_json_object(const std::filesystem::path& path, std::uint64_t largest) {
  std::error_code status;
  if (!std::filesystem::exists(path, status)) {
    throw_failure(cat(path.string(), ": no such file; name a Hugging Face model folder"));
  }
  if (!std::filesystem::is_regular_file(path, status)) {
    throw_failure(cat(path.string(), ": not a regular file"));
  }
  const std::uintmax_t bytes = std::filesystem::file_size(path, status);
  if (status) throw_failure(cat(path.string(), ": cannot be read: ", status.message()));
  if (bytes > largest) {
    throw_failure(cat(path.string(), ": ", bytes, " bytes are more than the ", largest,
                      " that such a file may have"));
  }
  std::string text(static_cast<std::size_t>(bytes), '\0');
  std::ifstream in(path, std::ios::binary);
  if (!in || !in.read(text.data(), static_cast<std::streamsize>(text.size()))) {
    throw_failure(cat(path.string(), ": cannot be read; check its permissions"));
  }
  return parse_json_object(text, path.string());
}

std::string shown(const nlohmann::json& value) {
  if (value.is_string()) return quote(value.get_ref<const std::string&>());
  if (value.is_structured() && value.size() > 16) return cat("a JSON ", value.type_name());
  const std::string text = value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  return text.size() <= 80 ? text : text.substr(0, 77) + "...";
}

}  // namespace coppice
