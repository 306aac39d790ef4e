// What a person sees of a program that writes to a terminal.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace coppice::testing {

/// A terminal's screen, endlessly high: text, carriage return, line feed, colours (ignored), and
/// erasing to the end of the row. One column per character of UTF-8. Anything else in the
/// output is kept as text, so that a test sees it.
class Screen {
 public:
  explicit Screen(std::size_t columns) : columns_(columns) {}

  void write(std::string_view bytes);
  /// Without the blanks at their ends.
  std::vector<std::string> rows() const;

 private:
  void put(std::string_view character);

  std::size_t columns_;
  std::size_t row_ = 0, column_ = 0;
  std::vector<std::vector<std::string>> cells_{1};
};

/// Runs a shell command with standard input, output and error on a terminal of `columns` columns,
/// and returns what it wrote there. `status` receives what waitpid() says.
std::string run_on_terminal(const std::string& command, unsigned short columns, int& status);

/// What a person types once `wait_for` stands in the output that came since the step before.
struct Typed {
  std::string wait_for, keys;
};
/// The same with a person at the keys. The command must end by itself; `seconds`, if not null,
/// receives how long after the last keys it did.
std::string talk_on_terminal(const std::string& command, const std::vector<Typed>& steps,
                             int& status, double* seconds = nullptr);

}  // namespace coppice::testing
