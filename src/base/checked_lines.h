// Lines of JSON that tell whether they are as they were written.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace coppice {

/// The line for `object`, a JSON object's text; without its end. Its last member, "check", is the
/// FNV-1a of all before it: any single changed byte is found.
std::string with_checksum(std::string_view object);

struct LineUses {
  /// Gets a whole line's number, from 1, and its object as it was before with_checksum().
  std::function<void(std::int64_t number, std::string object)> take;
  /// Gets a line that was changed after it was written, or was never ours; throws.
  std::function<void(std::int64_t number, std::string_view line)> refuse;
};

/// Reads the whole lines of a file's `text` and returns their bytes. What is behind them, a last
/// line without its end, may be left by a run that was killed while it wrote.
std::uintmax_t read_checked_lines(std::string_view text, const LineUses& uses);

}  // namespace coppice
