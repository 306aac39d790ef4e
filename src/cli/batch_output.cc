#include "cli/batch_output.h"

#include <filesystem>
#include <limits>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/json_file.h"
#include "cli/terminal.h"
#include "study/files/appended_file.h"

namespace coppice::cli {
namespace {

// All lines begin so; what a file that does not holds is not ours to cut.
constexpr std::string_view line_start = "{\"index\":";

bool may_be_torn(std::string_view tail) {
  return tail.substr(0, line_start.size()) == line_start.substr(0, tail.size());
}

}  // namespace

BatchOutput::BatchOutput(const std::string& file) {
  if (file.empty()) return;
  std::error_code ignored;
  const auto type = std::filesystem::status(file, ignored).type();
  if (type != std::filesystem::file_type::not_found &&
      type != std::filesystem::file_type::regular) {
    throw_failure(cat("output ", quote(file),
                      ": not a regular file; name one, or leave out --output and redirect"));
  }
  FileHandle handle = study::open_locked(file);
  if (handle.get() < 0) {
    throw_failure(cat("output ", quote(file),
                      ": another process writes it; wait for its end, or name another file"));
  }
  const std::string text = read_file(file, "output", std::numeric_limits<std::uintmax_t>::max());
  std::string_view rest = text;
  for (auto end = rest.find('\n'); end != rest.npos; end = rest.find('\n')) {
    try {
      read(rest.substr(0, end));
    } catch (const Error& error) {
      throw_failure(cat("output ", quote(file), " line ", stored_.size() + 1, error.what()));
    }
    rest.remove_prefix(end + 1);
  }
  if (!may_be_torn(rest)) {
    throw_failure(cat("output ", quote(file), " line ", stored_.size() + 1,
                      ": no line of a batch; name another file"));
  }
  next_ = stored_.size();
  file_.emplace(file, std::move(handle), text.size() - rest.size());
}

void BatchOutput::read(std::string_view line) {
  constexpr const char* damaged =
      ": changed after it was written; restore it, or cut the file off before it, and the texts "
      "from there on are written again";
  if (!line.starts_with(line_start)) {
    throw_failure(": no line of a batch; name another file");
  }
  try {
    const JsonObject object = parse_json_object(line, "");
    if (object->at("index").get<std::uint64_t>() != stored_.size()) throw_failure(damaged);
    stored_.push_back({object->at("request").get<std::string>(), object->contains("error")});
    if (!seed_) seed_ = object->at("batch_seed").get<std::uint64_t>();
  } catch (const nlohmann::json::exception&) {
    throw_failure(damaged);
  } catch (const Error&) {
    throw_failure(damaged);
  }
}

void BatchOutput::require(const std::vector<std::string>& requests) const {
  if (stored_.size() > requests.size()) {
    throw_usage(cat("output ", quote(file_->path().string()), " holds ", stored_.size(),
                    " texts, the batch ", requests.size(),
                    "; give the batch that it was made from, or name another --output"));
  }
  for (std::size_t i = 0; i < stored_.size(); ++i) {
    if (stored_[i].request == requests[i]) continue;
    throw_usage(cat("output ", quote(file_->path().string()), " line ", i + 1,
                    ": made from another prompt, or with other options or models; give the same "
                    "ones to go on, or name another --output"));
  }
}

void BatchOutput::put(std::size_t index, std::string line) {
  waiting_.emplace(index, std::move(line));
  std::string ready;
  auto last = waiting_.begin();
  std::size_t count = 0;
  for (; last != waiting_.end() && last->first == next_ + count; ++last, ++count) {
    ready += last->second;
  }
  if (count == 0) return;
  if (file_) {
    file_->append(ready);
  } else {
    write_out(ready);
  }
  waiting_.erase(waiting_.begin(), last);
  next_ += count;
}

void BatchOutput::finish() {
  if (file_) file_->sync();
}

}  // namespace coppice::cli
