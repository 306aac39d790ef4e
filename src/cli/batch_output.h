// Where `generate --batch` leaves its lines: in order, and so that a later run can go on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/appended_file.h"

namespace coppice::cli {

/// What an engine has for its texts, in tokens.
struct Room {
  std::int64_t kv_tokens = 0, context_length = 0;
};

/// What a text ended or failed in for want of more.
struct Lacked {
  Room room = {};            ///< what there was; 0: it was not for want of that
  bool host_memory = false;  ///< it failed because the host's memory ran out
};

struct StoredText {
  /// Tells that a line of output belongs to a line of input: whatever changes its text.
  std::string request;
  bool failed = false;
  Lacked lacked = {};
  bool lost_model = false;  ///< an error of the model, not of this text: former versions' lines
};

class BatchOutput {
 public:
  /// Standard output if `file` is empty. Else opens or creates the file, keeps other processes out
  /// and reads what a run that was ended early left, there and in FILE.waiting, where lines are
  /// that ended before one in front of them. Throws Error(failure), with the files as they were:
  /// another process writes them, or they hold what no batch wrote.
  explicit BatchOutput(const std::string& file);

  /// The common seed of the texts that are there, if some follow it.
  std::optional<std::uint64_t> seed() const { return seed_; }
  /// Checks that what is there answers `requests`: in the file the first of them. Throws
  /// Error(usage), with the files as they were. Only then a torn last line is cut off.
  void require(const std::vector<std::string>& requests);

  /// Whether the line of text `index` is there, written or waiting.
  bool has(std::size_t index) const { return index < next_ || waiting_.count(index) != 0; }
  /// Lines that are there.
  std::size_t lines() const { return next_ + waiting_.size(); }
  /// Those of texts that failed.
  std::size_t failed() const;
  /// Those of texts that might have gone on if they had had this room, in order.
  std::vector<std::size_t> longer_in(const Room& room) const;
  /// Those of texts that failed because the model was lost, in order.
  std::vector<std::size_t> of_lost_model() const;
  /// Those of texts that failed because the host's memory ran out, in order.
  std::vector<std::size_t> of_host_memory() const;
  /// Takes these lines back, which are there, until others are put in their place: who comes behind
  /// the first of them waits. What is not put, or has failed, leaves the old line. Throws
  /// Error(failure) for a full disk and the like.
  void write_again(const std::vector<std::size_t>& texts);

  /// Takes the line of text `index` and writes it as soon as all lines before it are written.
  /// Throws Error(failure), with the lines before as they were, for a full disk and the like;
  /// ClosedPipe.
  void put(std::size_t index, std::string line, bool failed);
  /// No more will come: old lines that nothing replaced come back. Files: waits until all that is
  /// written is on the disk. Standard output has nowhere to wait: what does is written, behind a
  /// gap.
  void finish();

 private:
  struct Line {
    std::string text;
    StoredText stored;
  };
  struct Stored {
    std::uint64_t index = 0;
    StoredText text;
  };
  /// A file that was there, or was made: nothing of it is changed before all is known to be ours.
  struct Found {
    std::filesystem::path path;
    FileHandle handle;
    const char* remedy;  ///< if it is not
    std::uintmax_t whole = 0;
    std::optional<Stored> torn = {};  ///< of the line behind `whole`, if it says so much
  };
  /// Takes a line; false: it has no place there.
  using Take = std::function<bool(std::uint64_t index, std::string_view line, StoredText stored)>;
  void read(Found& found, const Take& take);
  std::optional<Stored> stored_in(const std::string& object);
  void make_waiting();
  void write(std::string_view lines);
  void flush();
  template <typename Is>
  std::vector<std::size_t> texts_that(const Is& is) const;

  std::vector<Found> found_;  ///< the file and FILE.waiting, until require()
  std::optional<AppendedFile> file_;
  std::filesystem::path waiting_path_;
  std::optional<AppendedFile> waiting_file_;  ///< once something has to wait
  bool waits_on_disk_ = true;                 ///< until that fails
  std::vector<StoredText> written_;
  std::optional<std::uint64_t> seed_;
  std::map<std::size_t, Line> waiting_;
  std::map<std::size_t, Line> taken_back_;
  std::size_t next_ = 0;
};

}  // namespace coppice::cli
