#include "cli/batch_output.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "base/appended_file.h"
#include "base/error.h"
#include "base/files.h"
#include "base/json_file.h"
#include "cli/terminal.h"

namespace coppice::cli {
namespace {

// All lines begin so; what a file that does not holds is not ours to cut.
constexpr std::string_view line_start = "{\"index\":";

bool may_be_torn(std::string_view tail) {
  return tail.substr(0, line_start.size()) == line_start.substr(0, tail.size());
}

/// Calls `take` with every whole line; what it throws is told of the file and line. Sets the bytes
/// of these lines; behind them may be a torn one.
template <typename Take>
void read_lines(const std::string& file, const char* what, const char* remedy,
                std::uintmax_t& whole, const Take& take) {
  const std::string text = read_file(file, what, std::numeric_limits<std::uintmax_t>::max());
  std::string_view rest = text;
  std::size_t number = 1;
  for (auto end = rest.find('\n'); end != rest.npos; end = rest.find('\n'), ++number) {
    try {
      take(rest.substr(0, end));
    } catch (const Error& error) {
      throw_failure(cat(what, " ", quote(file), " line ", number, error.what()));
    }
    rest.remove_prefix(end + 1);
  }
  if (!may_be_torn(rest)) {
    throw_failure(cat(what, " ", quote(file), " line ", number, ": no line of a batch; ", remedy));
  }
  whole = text.size() - rest.size();
}

constexpr const char* damaged =
    ": changed after it was written; restore it, or cut the file off before it, and the texts from "
    "there on are written again";

constexpr const char* remove_waiting =
    "move it away or remove it (texts that only it holds are written again)";

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
  FileHandle handle = open_locked(file);
  if (handle.get() < 0) {
    throw_failure(cat("output ", quote(file),
                      ": another process writes it; wait for its end, or name another file"));
  }
  std::uintmax_t whole = 0;
  constexpr const char* remedy = "name another file";
  read_lines(file, "output", remedy, whole, [&](std::string_view line) {
    std::uint64_t index = 0;
    StoredText stored = read(line, index, remedy);
    if (index != written_.size()) throw_failure(damaged);
    written_.push_back(std::move(stored));
  });
  next_ = written_.size();
  waiting_path_ = file + ".waiting";
  if (type == std::filesystem::file_type::not_found) {
    std::filesystem::remove(waiting_path_, ignored);  // of an output that somebody removed
  } else if (is_there(waiting_path_)) {
    open_waiting();
  }
  file_.emplace(file, std::move(handle), whole);
}

void BatchOutput::open_waiting() {
  std::error_code ignored;
  const auto type = std::filesystem::status(waiting_path_, ignored).type();
  const bool writable = ::faccessat(AT_FDCWD, waiting_path_.c_str(), R_OK | W_OK, AT_EACCESS) == 0;
  if (type != std::filesystem::file_type::not_found &&
      (type != std::filesystem::file_type::regular || !writable)) {
    throw_failure(cat("output ", quote(waiting_path_.string()),
                      writable ? ": not a regular file; " : ": cannot be read and written; ",
                      remove_waiting));
  }
  FileHandle handle = open_file(waiting_path_, O_RDWR | O_CREAT);
  std::uintmax_t whole = 0;
  read_lines(waiting_path_.string(), "output", remove_waiting, whole, [&](std::string_view line) {
    std::uint64_t index = 0;
    StoredText stored = read(line, index, remove_waiting);
    if (index >= next_) waiting_[index] = {std::string(line) + "\n", std::move(stored)};
  });
  waiting_file_.emplace(waiting_path_, std::move(handle), whole);
}

StoredText BatchOutput::read(std::string_view line, std::uint64_t& index, const char* remedy) {
  if (!line.starts_with(line_start)) throw_failure(cat(": no line of a batch; ", remedy));
  try {
    const JsonObject object = parse_json_object(line, "");
    index = object->at("index").get<std::uint64_t>();
    const auto& seed = object->at("batch_seed");
    if (!seed_ && !seed.is_null()) seed_ = seed.get<std::uint64_t>();
    StoredText stored = {object->at("request").get<std::string>(), object->contains("error")};
    if (const auto lacked = object->find("lacked"); lacked != object->end()) {
      stored.lacked.kv_tokens = lacked->value("kv_tokens", std::int64_t{0});
      stored.lacked.context_length = lacked->value("context_length", std::int64_t{0});
    }
    return stored;
  } catch (const nlohmann::json::exception&) {
    throw_failure(damaged);
  } catch (const Error&) {
    throw_failure(damaged);
  }
}

void BatchOutput::require(const std::vector<std::string>& requests) {
  if (written_.size() > requests.size()) {
    throw_usage(cat("output ", quote(file_->path().string()), " holds ", written_.size(),
                    " texts, the batch ", requests.size(),
                    "; give the batch that it was made from, or name another --output"));
  }
  for (std::size_t i = 0; i < written_.size(); ++i) {
    if (written_[i].request == requests[i]) continue;
    throw_usage(cat("output ", quote(file_->path().string()), " line ", i + 1,
                    ": made from another prompt, or with other options or models; give the same "
                    "ones to go on, or name another --output"));
  }
  std::erase_if(waiting_, [&](const auto& entry) {
    return entry.first >= requests.size() || entry.second.stored.request != requests[entry.first];
  });
  flush();
}

std::size_t BatchOutput::failed() const {
  const auto of_written =
      std::count_if(written_.begin(), written_.end(), [](const StoredText& t) { return t.failed; });
  const auto of_waiting = std::count_if(waiting_.begin(), waiting_.end(), [](const auto& entry) {
    return entry.second.stored.failed;
  });
  return static_cast<std::size_t>(of_written + of_waiting);
}

const StoredText& BatchOutput::stored(std::size_t index) const {
  return index < next_ ? written_[index] : waiting_.at(index).stored;
}

std::vector<std::size_t> BatchOutput::longer_in(const Room& room) const {
  std::vector<std::size_t> texts;
  const auto look = [&](std::size_t index) {
    const Room& lacked = stored(index).lacked;
    const auto more = [](std::int64_t now, std::int64_t then) { return then > 0 && now > then; };
    if (more(room.kv_tokens, lacked.kv_tokens) ||
        more(room.context_length, lacked.context_length)) {
      texts.push_back(index);
    }
  };
  for (std::size_t i = 0; i < next_; ++i) look(i);
  for (const auto& [index, line] : waiting_) look(index);
  return texts;
}

void BatchOutput::write_again(const std::vector<std::size_t>& texts) {
  if (texts.empty()) return;
  const std::size_t first = texts.front();
  if (first < next_) {
    // At every moment the two files together hold all lines.
    const std::string all =
        read_file(file_->path(), "output", std::numeric_limits<std::uintmax_t>::max());
    std::size_t begin = 0;
    for (std::size_t i = 0; i < first; ++i) begin = all.find('\n', begin) + 1;
    if (!waiting_file_) open_waiting();
    waiting_file_->append(std::string_view(all).substr(begin));
    waiting_file_->sync();
    file_->cut(begin);
    for (std::size_t i = first; i < next_; ++i) {
      const std::size_t end = all.find('\n', begin) + 1;
      waiting_[i] = {all.substr(begin, end - begin), std::move(written_[i])};
      begin = end;
    }
    written_.resize(first);
    next_ = first;
  }
  for (const std::size_t index : texts) {
    taken_back_.insert(waiting_.extract(index));
  }
}

void BatchOutput::put(std::size_t index, std::string line, bool failed) {
  auto old = taken_back_.extract(index);
  if (failed && !old.empty()) {
    waiting_.insert(std::move(old));
    return flush();
  }
  if (index != next_ && file_ && waits_on_disk_) {
    try {
      if (!waiting_file_) open_waiting();
      waiting_file_->append(line);
    } catch (const Error&) {
      waits_on_disk_ = false;  // it still waits in memory
    }
  }
  waiting_[index] = {std::move(line), {"", failed}};
  flush();
}

void BatchOutput::write(std::string_view lines) {
  if (file_) {
    file_->append(lines);
  } else {
    write_out(lines);
  }
}

void BatchOutput::flush() {
  std::string ready;
  auto last = waiting_.begin();
  std::size_t count = 0;
  for (; last != waiting_.end() && last->first == next_ + count; ++last, ++count) {
    ready += last->second.text;
  }
  if (count > 0) write(ready);
  for (auto line = waiting_.begin(); line != last; ++line) {
    written_.push_back(std::move(line->second.stored));
  }
  waiting_.erase(waiting_.begin(), last);
  next_ += count;
  if (!waiting_.empty() || !taken_back_.empty() || !waiting_file_) return;
  waiting_file_.reset();
  std::error_code ignored;
  std::filesystem::remove(waiting_path_, ignored);
}

void BatchOutput::finish() {
  while (!taken_back_.empty()) {
    auto old = taken_back_.extract(taken_back_.begin());
    if (!has(old.key())) waiting_.insert(std::move(old));
  }
  if (file_) {
    flush();
    file_->sync();
    if (waiting_file_) waiting_file_->sync();
    return;
  }
  for (const auto& [index, line] : waiting_) write(line.text);
}

}  // namespace coppice::cli
