#include "base/checked_lines.h"

#include <optional>
#include <utility>

#include "base/error.h"
#include "base/fingerprint.h"

namespace coppice {
namespace {

constexpr std::string_view before_check = ",\"check\":\"", after_check = "\"}";
constexpr std::size_t check_digits = 16;
constexpr std::size_t check_bytes = before_check.size() + check_digits + after_check.size();

/// The object without its checksum. nullopt where that is missing or another.
std::optional<std::string> checked(std::string_view line) {
  if (line.size() <= check_bytes) return std::nullopt;
  std::string object(line.substr(0, line.size() - check_bytes));
  object += '}';
  if (with_checksum(object) != line) return std::nullopt;
  return object;
}

}  // namespace

std::string with_checksum(std::string_view object) {
  const std::string_view text = object.substr(0, object.size() - 1);
  Fingerprint fingerprint;
  fingerprint.add(text);
  return cat(text, before_check, fingerprint.text(), after_check);
}

std::uintmax_t read_checked_lines(std::string_view text, const LineUses& uses) {
  std::string_view rest = text;
  std::int64_t number = 1;
  for (auto end = rest.find('\n'); end != rest.npos; end = rest.find('\n'), ++number) {
    const std::string_view line = rest.substr(0, end);
    std::optional<std::string> object = checked(line);
    if (!object) {
      uses.refuse(number, line);
    } else {
      uses.take(number, std::move(*object));
    }
    rest.remove_prefix(end + 1);
  }
  // A whole line and something else in place of its end: that byte was changed, nothing was torn.
  if (!rest.empty() && checked(rest.substr(0, rest.size() - 1))) uses.refuse(number, rest);
  return text.size() - rest.size();
}

}  // namespace coppice
