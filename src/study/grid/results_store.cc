#include "study/grid/results_store.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <limits>
#include <optional>
#include <system_error>

#include "base/error.h"
#include "study/files/fingerprint.h"

namespace coppice::study {
namespace {

constexpr std::string_view before_check = ",\"check\":\"", after_check = "\"}";
constexpr std::size_t check_digits = 16;
constexpr std::size_t check_bytes = before_check.size() + check_digits + after_check.size();

std::string check_of(std::string_view text) {
  Fingerprint fingerprint;
  fingerprint.add(text);
  return fingerprint.text();
}

/// The object without its checksum. nullopt where that is missing or another.
std::optional<std::string> checked(std::string_view line) {
  if (line.size() <= check_bytes) return std::nullopt;
  const std::string_view text = line.substr(0, line.size() - check_bytes);
  std::string object(text);
  object += '}';
  if (with_checksum(object) != line) return std::nullopt;
  return object;
}

}  // namespace

std::string with_checksum(std::string_view object) {
  const std::string_view text = object.substr(0, object.size() - 1);
  return cat(text, before_check, check_of(text), after_check);
}

std::vector<StoredLine> read_results(const std::filesystem::path& file,
                                     std::uintmax_t* whole_bytes) {
  const std::string text = read_file(file, "results", std::numeric_limits<std::uintmax_t>::max());
  std::vector<StoredLine> lines;
  std::string_view rest = text;
  const auto refuse = [&](std::int64_t number) {
    throw_failure(cat(file.string(), " line ", number,
                      ": its checksum is not that of the line, which was changed after it was "
                      "written; restore the file, or delete the line, and its result is measured "
                      "again"));
  };
  std::int64_t number = 1;
  for (;; ++number) {
    const auto end = rest.find('\n');
    if (end == rest.npos) break;
    std::optional<std::string> object = checked(rest.substr(0, end));
    if (!object) refuse(number);
    lines.push_back({number, std::move(*object)});
    rest.remove_prefix(end + 1);
  }
  // A whole line and something else in place of its end: that byte was changed, nothing was torn.
  if (!rest.empty() && checked(rest.substr(0, rest.size() - 1))) refuse(number);
  if (whole_bytes != nullptr) *whole_bytes = text.size() - rest.size();
  return lines;
}

ResultsStore::ResultsStore(const std::filesystem::path& file) : file_(file) {
  std::error_code ignored;
  const bool is_new = !std::filesystem::exists(file, ignored);
  handle_ = open_file(file, O_RDWR | O_CREAT | O_APPEND);
  if (is_new) sync_folder(file.parent_path());
  lines_ = read_results(file, &size_);
  if (std::filesystem::file_size(file) != size_ &&
      ::ftruncate(handle_.get(), static_cast<off_t>(size_)) != 0) {
    throw_write_failure(file_, errno);
  }
}

void ResultsStore::append(std::string_view object) {
  const std::string whole = with_checksum(object) + '\n';
  if (!write_all(handle_.get(), whole) || ::fsync(handle_.get()) != 0) {
    const int error = errno;
    // Should this fail too, the next run cuts the torn line off.
    [[maybe_unused]] const int cut = ::ftruncate(handle_.get(), static_cast<off_t>(size_));
    throw_write_failure(file_, error);
  }
  size_ += whole.size();
}

}  // namespace coppice::study
