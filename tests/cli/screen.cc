#include "cli/screen.h"

#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stdexcept>

#include "base/stopwatch.h"

namespace coppice::testing {

void Screen::put(std::string_view character) {
  // As terminals do: a full row is left when the next character comes.
  if (column_ == columns_) {
    column_ = 0;
    ++row_;
  }
  if (row_ >= cells_.size()) cells_.resize(row_ + 1);
  auto& row = cells_[row_];
  if (row.size() <= column_) row.resize(column_ + 1, " ");
  row[column_++] = character;
}

void Screen::write(std::string_view bytes) {
  while (!bytes.empty()) {
    std::size_t used = 1;
    if (bytes[0] == '\r') {
      column_ = 0;
    } else if (bytes[0] == '\n') {
      if (++row_ >= cells_.size()) cells_.resize(row_ + 1);
    } else if (bytes.substr(0, 3) == "\033[K") {
      auto& row = cells_[row_];
      if (row.size() > column_) row.resize(column_);
      used = 3;
    } else if (bytes.substr(0, 2) == "\033[" && bytes.find('m') < 8) {
      used = bytes.find('m') + 1;
    } else {
      while (used < bytes.size() && (static_cast<unsigned char>(bytes[used]) & 0xc0u) == 0x80u) {
        ++used;
      }
      put(bytes.substr(0, used));
    }
    bytes.remove_prefix(used);
  }
}

std::vector<std::string> Screen::rows() const {
  std::vector<std::string> rows;
  for (const auto& cells : cells_) {
    std::string row;
    for (const std::string& cell : cells) row += cell;
    row.erase(row.find_last_not_of(' ') + 1);
    rows.push_back(std::move(row));
  }
  return rows;
}

namespace {

std::string run_with_keys(const std::string& command, unsigned short columns,
                          const std::vector<Typed>& steps, int& status, double* seconds) {
  winsize size{};
  size.ws_col = columns;
  size.ws_row = 50;
  int terminal = -1;
  const pid_t child = forkpty(&terminal, nullptr, nullptr, &size);
  if (child < 0) throw std::runtime_error("no pseudo-terminal");
  if (child == 0) {
    execl("/bin/sh", "sh", "-c", command.c_str(), static_cast<char*>(nullptr));
    _exit(127);
  }
  std::string output;
  char buffer[4096];
  std::size_t step = 0, from = 0;
  double typed_at = now_seconds();
  // Linux ends the reading with EIO when the last writer has gone.
  for (ssize_t n = 0; (n = read(terminal, buffer, sizeof buffer)) > 0;) {
    output.append(buffer, static_cast<std::size_t>(n));
    while (step < steps.size()) {
      const std::size_t found = output.find(steps[step].wait_for, from);
      if (found == std::string::npos) break;
      from = found + steps[step].wait_for.size();
      const std::string& keys = steps[step++].keys;
      if (write(terminal, keys.data(), keys.size()) < 0) break;
      typed_at = now_seconds();
    }
  }
  close(terminal);
  waitpid(child, &status, 0);
  if (seconds != nullptr) *seconds = now_seconds() - typed_at;
  return output;
}

}  // namespace

std::string run_on_terminal(const std::string& command, unsigned short columns, int& status) {
  return run_with_keys(command, columns, {}, status, nullptr);
}

std::string talk_on_terminal(const std::string& command, const std::vector<Typed>& steps,
                             int& status, double* seconds) {
  return run_with_keys(command, 200, steps, status, seconds);
}

}  // namespace coppice::testing
