// What the stages of a file may do with a text, in proportion to its length.
#pragma once

#include <cstddef>
#include <string>

namespace coppice::tokenization {

/// A file says which stages a text goes through, and what each makes of it: forty that double a
/// text would take all memory. Real files stay far below these bounds.
class Allowance {
 public:
  /// For `bytes` of text in all; `file` is what messages name, and must live on.
  Allowance(std::size_t bytes, const std::string& file);

  /// A stage wrote, or is to write, so many bytes. Throws Error(failure) if that is too much.
  void write(std::size_t bytes);
  /// A regular expression stepped back so often; false if that is too often.
  bool step(std::size_t steps);
  /// A regular expression looked at so many bytes; false if that is too many.
  bool look(std::size_t bytes) { return step(steps_per_look * bytes); }
  std::size_t steps_left() const { return steps_; }

 private:
  /// A look is reported by a call, which takes longer than a step back.
  static constexpr std::size_t steps_per_look = 2;

  const std::string& file_;
  std::size_t given_, bytes_, steps_;
};

}  // namespace coppice::tokenization
