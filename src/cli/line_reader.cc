#include "cli/line_reader.h"

#include <clocale>
#include <cstdio>
#include <iostream>

#include "base/error.h"
#include "cli/terminal.h"

#ifdef COPPICE_HAS_LIBEDIT
#include <histedit.h>
#endif

namespace coppice::cli {

#ifdef COPPICE_HAS_LIBEDIT
struct LineReader::Editor {
  explicit Editor(std::string shown) : prompt(std::move(shown)) {
    std::setlocale(LC_CTYPE, "C.UTF-8");  // as the rest of the program takes its text
    lines = history_init();
    HistEvent event;
    if (lines != nullptr) history(lines, &event, H_SETSIZE, 1000);
    edit = el_init("coppice", stdin, stdout, stderr);
    if (edit == nullptr) return;
    el_set(edit, EL_CLIENTDATA, this);
    el_set(
        edit, EL_PROMPT, +[](EditLine* self) {
          void* data = nullptr;
          el_get(self, EL_CLIENTDATA, &data);
          return static_cast<Editor*>(data)->prompt.data();
        });
    el_set(edit, EL_EDITOR, "emacs");
    if (lines != nullptr) el_set(edit, EL_HIST, history, lines);
    // While a line is edited Ctrl-C is a key.
    el_set(edit, EL_SETTY, "-d", "-isig", nullptr);
    el_set(edit, EL_BIND, "^C", "em-kill-line", nullptr);
  }
  ~Editor() {
    if (edit != nullptr) el_end(edit);
    if (lines != nullptr) history_end(lines);
  }
  Editor(const Editor&) = delete;
  Editor& operator=(const Editor&) = delete;

  std::string prompt;
  EditLine* edit = nullptr;
  History* lines = nullptr;
};
#else
struct LineReader::Editor {};
#endif

LineReader::LineReader(std::string prompt) {
  if (!stdin_is_terminal()) return;
  prompt_ = std::move(prompt);
#ifdef COPPICE_HAS_LIBEDIT
  if (!stdout_is_terminal()) return;
  editor_ = std::make_unique<Editor>(prompt_);
  if (editor_->edit == nullptr) editor_.reset();
#endif
}

LineReader::~LineReader() = default;

std::optional<std::string> LineReader::read() {
#ifdef COPPICE_HAS_LIBEDIT
  if (editor_) {
    int count = 0;
    // So that keys typed as the prompt appears are not lost.
    el_set(editor_->edit, EL_PREP_TERM, 1);
    const char* line = el_gets(editor_->edit, &count);
    if (line == nullptr || count <= 0) return std::nullopt;
    std::string text(line, static_cast<std::size_t>(count));
    HistEvent event;
    if (editor_->lines != nullptr && text != "\n") {
      history(editor_->lines, &event, H_ENTER, line);
    }
    if (text.back() == '\n') text.pop_back();
    return text;
  }
#endif
  if (!prompt_.empty()) std::cerr << prompt_ << std::flush;
  constexpr std::size_t longest = std::size_t{64} << 20;
  std::string text;
  for (int c = 0; (c = std::cin.get()) != std::char_traits<char>::eof();) {
    if (c == '\n') return text;
    text += static_cast<char>(c);
    if (text.size() > longest) {
      throw_usage("standard input: a line is longer than 64 MiB; give a shorter text");
    }
  }
  if (text.empty()) return std::nullopt;
  return text;
}

}  // namespace coppice::cli
