// The line of JSON that traces and recordings begin with.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/json_file.h"

namespace coppice::study {

/// A kind of file. Its first line holds "format" and "format_version", and what else it needs.
struct FileFormat {
  const char* what;    ///< as messages call such a file
  const char* name;    ///< "format"
  int version;         ///< "format_version"
  const char* writer;  ///< the command that writes such files
};

/// A first line's members that all formats have, to which others are added.
nlohmann::ordered_json header_of(const FileFormat& format);

/// The first line of a file's text, without its end. nullopt where none ends within 16 MiB.
std::optional<std::string_view> header_line(std::string_view text);

/// The first line of `text`, a file that messages call `where`. Throws Error(failure): no whole
/// line of JSON, another format, or another version of it.
JsonObject read_header(const FileFormat& format, std::string_view text, const std::string& where);

}  // namespace coppice::study
