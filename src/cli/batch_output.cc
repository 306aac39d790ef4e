#include "cli/batch_output.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <system_error>
#include <utility>

#include "base/appended_file.h"
#include "base/checked_lines.h"
#include "base/error.h"
#include "base/files.h"
#include "base/json_file.h"
#include "cli/terminal.h"
#include "kernels/rank_failure.h"

namespace coppice::cli {
namespace {

constexpr std::string_view line_start = "{\"index\":";

/// What a line begins with, of itself and then of others:
/// `{"index":N,"batch_seed":S,"request":"R"`. Its size; 0 for what does not begin so, npos for what
/// may and ends before.
std::size_t head_of(std::string_view line) {
  std::string_view rest = line;
  bool complete = true;
  const auto take = [&](std::string_view expected) {
    complete = rest.size() >= expected.size();
    const bool fits = rest.starts_with(expected.substr(0, rest.size()));
    rest.remove_prefix(std::min(rest.size(), expected.size()));
    return fits;
  };
  const auto skip = [&](std::string_view characters) {
    rest.remove_prefix(std::min(rest.size(), rest.find_first_not_of(characters)));
    return true;
  };
  const bool fits = take(line_start) && skip("0123456789") && take(",\"batch_seed\":") &&
                    skip("0123456789nul") && take(",\"request\":\"") && skip("0123456789abcdef") &&
                    take("\"");
  if (!fits) return 0;
  return complete ? line.size() - rest.size() : std::string_view::npos;
}

/// Whether a line's error is what LostModel (base/lost_model.h) says.
bool tells_of_lost_model(std::string_view error) {
  return error.starts_with(rank_subject) || error.find("/layers: became shorter ") != error.npos ||
         error.find("/layers: cannot be read: ") != error.npos;
}

constexpr const char* other_file = "name another file";
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
  waiting_path_ = file + ".waiting";
  const auto waiting = std::filesystem::symlink_status(waiting_path_, ignored).type();
  const auto refuse_waiting = [&](const char* what) {
    throw_failure(cat("output ", quote(waiting_path_.string()), what, remove_waiting));
  };
  if (waiting != std::filesystem::file_type::not_found) {
    if (waiting != std::filesystem::file_type::regular) refuse_waiting(": not a regular file; ");
    if (::access(waiting_path_.c_str(), R_OK | W_OK) != 0) {
      refuse_waiting(": cannot be read and written; ");
    }
  }
  Found found = {file, open_locked(file), other_file};
  if (found.handle.get() < 0) {
    throw_failure(cat("output ", quote(file),
                      ": another process writes it; wait for its end, or name another file"));
  }
  read(found, [&](std::uint64_t index, std::string_view, StoredText stored) {
    if (index != written_.size()) return false;
    written_.push_back(std::move(stored));
    return true;
  });
  next_ = written_.size();
  found_.push_back(std::move(found));
  if (waiting == std::filesystem::file_type::not_found) return;
  Found waits = {waiting_path_, open_file(waiting_path_, O_RDWR | O_NOFOLLOW), remove_waiting};
  read(waits, [&](std::uint64_t index, std::string_view line, StoredText stored) {
    waiting_[index] = {cat(line, "\n"), std::move(stored)};
    return true;
  });
  found_.push_back(std::move(waits));
}

void BatchOutput::read(Found& found, const Take& take) {
  const std::string name = cat("output ", quote(found.path.string()));
  const auto refuse = [&](std::int64_t number, std::string_view line) {
    throw_failure(
        cat(name, " line ", number,
            head_of(line) == 0 && !line.starts_with(line_start)
                ? cat(": no line of a batch; ", found.remedy)
                : cat(": changed after it was written, or another version's; restore it, ",
                      found.remedy,
                      ", or cut it off before this line, and the texts from there on are written "
                      "again")));
  };
  // A file of another kind may be larger than memory.
  std::string start(std::min<std::uint64_t>(stamp_of(found.handle, name).bytes, line_start.size()),
                    '\0');
  fill_from(found.handle, name, 0, std::as_writable_bytes(std::span(start)));
  if (!start.empty() && head_of(start) == 0) refuse(1, start);
  const std::string text = read_file(found.handle, name);
  LineUses uses;
  uses.refuse = refuse;
  std::int64_t lines = 0;
  uses.take = [&](std::int64_t number, const std::string& object) {
    lines = number;
    const std::optional<Stored> stored = stored_in(object);
    const bool taken = stored && take(stored->index, with_checksum(object), stored->text);
    if (!taken) refuse(number, object);
  };
  found.whole = read_checked_lines(text, uses);
  const std::string_view torn = std::string_view(text).substr(found.whole);
  const std::size_t head = head_of(torn);
  if (head == 0 && !torn.empty()) refuse(lines + 1, torn);
  if (!torn.empty() && head != torn.npos) found.torn = stored_in(cat(torn.substr(0, head), "}"));
}

std::optional<BatchOutput::Stored> BatchOutput::stored_in(const std::string& object) {
  try {
    const JsonObject json = parse_json_object(object, "");
    const auto& seed = json->at("batch_seed");
    if (!seed_ && !seed.is_null()) seed_ = seed.get<std::uint64_t>();
    StoredText stored = {json->at("request").get<std::string>(), json->contains("error")};
    stored.lost_model = stored.failed && tells_of_lost_model(json->at("error").get<std::string>());
    if (const auto lacked = json->find("lacked"); lacked != json->end()) {
      stored.lacked.room.kv_tokens = lacked->value("kv_tokens", std::int64_t{0});
      stored.lacked.room.context_length = lacked->value("context_length", std::int64_t{0});
      stored.lacked.host_memory = lacked->value("host_memory", false);
    }
    return Stored{json->at("index").get<std::uint64_t>(), std::move(stored)};
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  } catch (const Error&) {
    return std::nullopt;
  }
}

void BatchOutput::require(const std::vector<std::string>& requests) {
  const auto check = [&](const Found& found, std::uint64_t index, const StoredText& stored) {
    if (index < requests.size() && stored.request == requests[index]) return;
    throw_usage(cat("output ", quote(found.path.string()), ": text ", index,
                    index < requests.size()
                        ? " was made from another prompt, or with other options or models"
                        : cat(" is there, the batch has ", requests.size()),
                    "; give the same batch and options to go on, or name another --output"));
  };
  if (found_.empty()) return;
  for (std::size_t i = 0; i < written_.size(); ++i) check(found_[0], i, written_[i]);
  for (const auto& [index, line] : waiting_) check(found_.back(), index, line.stored);
  for (const Found& found : found_) {
    if (found.torn) check(found, found.torn->index, found.torn->text);
  }
  // All is of this batch; what is torn may go.
  file_.emplace(found_[0].path, std::move(found_[0].handle), found_[0].whole);
  if (found_.size() > 1) {
    waiting_file_.emplace(found_[1].path, std::move(found_[1].handle), found_[1].whole);
  }
  waiting_.erase(waiting_.begin(), waiting_.lower_bound(next_));
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

template <typename Is>
std::vector<std::size_t> BatchOutput::texts_that(const Is& is) const {
  std::vector<std::size_t> texts;
  for (std::size_t i = 0; i < next_; ++i) {
    if (is(written_[i])) texts.push_back(i);
  }
  for (const auto& [index, line] : waiting_) {
    if (is(line.stored)) texts.push_back(index);
  }
  return texts;
}

std::vector<std::size_t> BatchOutput::longer_in(const Room& room) const {
  const auto more = [](std::int64_t now, std::int64_t then) { return then > 0 && now > then; };
  return texts_that([&](const StoredText& text) {
    return more(room.kv_tokens, text.lacked.room.kv_tokens) ||
           more(room.context_length, text.lacked.room.context_length);
  });
}

std::vector<std::size_t> BatchOutput::of_lost_model() const {
  return texts_that([](const StoredText& text) { return text.lost_model; });
}

std::vector<std::size_t> BatchOutput::of_host_memory() const {
  return texts_that([](const StoredText& text) { return text.lacked.host_memory; });
}

void BatchOutput::write_again(const std::vector<std::size_t>& texts) {
  if (texts.empty()) return;
  const std::size_t first = texts.front();
  if (first < next_) {
    // At every moment the two files together hold all lines.
    const std::string all = read_file(file_->path(), "output", UINTMAX_MAX);
    std::size_t begin = 0;
    for (std::size_t i = 0; i < first; ++i) begin = all.find('\n', begin) + 1;
    if (!waiting_file_) make_waiting();
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
      if (!waiting_file_) make_waiting();
      waiting_file_->append(line);
    } catch (const Error&) {
      waits_on_disk_ = false;  // it still waits in memory
    }
  }
  waiting_[index] = {std::move(line), {"", failed}};
  flush();
}

void BatchOutput::make_waiting() {
  constexpr int anew = O_RDWR | O_CREAT | O_EXCL;  // nothing that appeared meanwhile
  waiting_file_.emplace(waiting_path_, open_file(waiting_path_, anew), 0);
}

void BatchOutput::write(std::string_view lines) {
  if (file_) {
    file_->append(lines);
  } else {
    write_out(lines);
  }
}

void BatchOutput::flush() {
  for (auto line = waiting_.begin(); line != waiting_.end() && line->first == next_; ++next_) {
    write(line->second.text);
    written_.push_back(std::move(line->second.stored));
    line = waiting_.erase(line);
  }
  if (!waiting_.empty() || !taken_back_.empty() || !waiting_file_) return;
  file_->sync();  // not even a power cut may lose what waited
  waiting_file_->remove();
  waiting_file_.reset();
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
