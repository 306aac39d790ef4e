#include "study/files/file_header.h"

#include <cstddef>

#include "base/error.h"

namespace coppice::study {
namespace {

constexpr std::size_t longest_header = std::size_t{1} << 24;

}  // namespace

nlohmann::ordered_json header_of(const FileFormat& format) {
  return {{"format", format.name}, {"format_version", format.version}};
}

std::optional<std::string_view> header_line(std::string_view text) {
  const auto end = text.substr(0, longest_header).find('\n');
  if (end == text.npos) return std::nullopt;
  return text.substr(0, end);
}

JsonObject read_header(const FileFormat& format, std::string_view text, const std::string& where) {
  const auto line = header_line(text);
  // All that these files' first lines begin with; what does not was never one of them.
  if (!text.starts_with(R"({"format")")) {
    throw_failure(cat(where, ": it is no ", format.what, "; name a file that ", format.writer,
                      " wrote, or make one with it"));
  }
  if (!line) throw_failure(cat(where, ": it is cut off within its first line; make it anew"));
  JsonObject header = parse_json_object(*line, where);
  if (header->value("format", nlohmann::json()) != format.name) {
    throw_failure(cat(where, R"(: its first line names no "format" )", quote(format.name),
                      "; name a file that ", format.writer, " wrote"));
  }
  const nlohmann::json version = header->value("format_version", nlohmann::json());
  if (version != format.version) {
    throw_failure(cat(where, ": format version ", shown(version), "; this program reads version ",
                      format.version));
  }
  return header;
}

}  // namespace coppice::study
