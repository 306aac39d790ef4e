#include "cli/streamed_text.h"

#include "cli/terminal.h"

namespace coppice::cli {

bool StreamedText::put(std::string_view piece) {
  try {
    write_generated(piece);
    shown_ += piece.size();
  } catch (const ClosedPipe&) {
    reader_gone_ = true;
    return false;
  }
  return !InterruptWatch::interrupted();
}

void StreamedText::finish(std::string_view whole) {
  if (reader_gone_) throw ClosedPipe{};
  write_generated(whole.substr(shown_));
  write_out("\n");
}

void StreamedText::abandon() {
  if (shown_ > 0) write_out("\n");
}

}  // namespace coppice::cli
