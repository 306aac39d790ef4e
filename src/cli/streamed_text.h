// A generated text on its way to standard output.
#pragma once

#include <cstddef>
#include <exception>
#include <string_view>

namespace coppice::cli {

class StreamedText {
 public:
  /// Writes what came. False, for the generation to end: it could not be written, or Ctrl-C.
  bool put(std::string_view piece);
  /// Writes the rest of `whole`, which the pieces began, and a line end. Throws what writing threw,
  /// here or in put().
  void finish(std::string_view whole);
  /// Ends the line of a text that failed, if there is some of it.
  void abandon();

 private:
  std::size_t shown_ = 0;  ///< bytes
  std::exception_ptr failure_;
};

}  // namespace coppice::cli
