// Lines that a person types, or that a pipe brings.
#pragma once

#include <memory>
#include <optional>
#include <string>

namespace coppice::cli {

/// On a terminal, and if built with libedit, lines can be edited and called back; Ctrl-C empties
/// the line. Otherwise plain lines.
class LineReader {
 public:
  explicit LineReader(std::string prompt);
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  /// The next line without its end, or nothing at the end of the input. Throws Error(usage) for a
  /// line beyond 64 MiB.
  std::optional<std::string> read();

 private:
  struct Editor;
  std::unique_ptr<Editor> editor_;  ///< null: plain lines
  std::string prompt_;              ///< empty: none is shown
};

}  // namespace coppice::cli
