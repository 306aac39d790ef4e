// Strict JSON: duplicate keys and deep nesting are refused, errors are one line.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace coppice {

/// Parses `text`, which came from `file` (for the message). Throws Error(failure): no JSON, not
/// UTF-8, a key twice in one object, nesting beyond 64 levels, not an object.
nlohmann::json parse_json_object(std::string_view text, const std::string& file);

/// Reads and parses a file of at most `largest` bytes.
nlohmann::json read_json_object(const std::filesystem::path& path, std::uint64_t largest);

/// A value as it stands in its file, shortened, for messages.
std::string shown(const nlohmann::json& value);

}  // namespace coppice
