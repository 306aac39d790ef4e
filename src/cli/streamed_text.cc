#include "cli/streamed_text.h"

#include "cli/terminal.h"

namespace coppice::cli {

bool StreamedText::put(std::string_view piece) {
  try {
    write_generated(piece);
    shown_ += piece.size();
  } catch (...) {
    failure_ = std::current_exception();
    return false;
  }
  return !InterruptWatch::interrupted();
}

void StreamedText::finish(std::string_view whole) {
  if (failure_) std::rethrow_exception(failure_);
  write_generated(whole.substr(shown_));
  write_out("\n");
}

void StreamedText::abandon() {
  if (shown_ > 0) write_out("\n");
}

}  // namespace coppice::cli
