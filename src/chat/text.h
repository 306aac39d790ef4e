// UTF-8 text that remembers, byte by byte, who wrote it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "chat/budget.h"

namespace coppice::chat {

/// A stretch of a text by one writer.
struct Segment {
  std::string_view text;
  bool foreign = false;
};

/// Text in which every byte is either the template's own or foreign: of a message, a tool's
/// description, or anything else that came in with a conversation. Only the template's own bytes
/// may become special tokens. Every operation carries the marks along; equality is of bytes. What
/// makes text charges the rendering's budget.
class Text {
 public:
  Text() = default;
  explicit Text(std::string bytes, bool foreign = false);
  Text(const char* own) : Text(std::string(own)) {}
  Text(const Text& other) { append(other); }
  Text& operator=(const Text& other) { return *this = Text(other); }
  Text(Text&&) noexcept = default;
  Text& operator=(Text&&) noexcept = default;
  ~Text() = default;

  const std::string& bytes() const { return bytes_; }
  std::string_view view() const { return bytes_; }
  std::size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  bool foreign_at(std::size_t at) const { return !marks_.empty() && marks_[at] != '\0'; }
  bool has_foreign() const { return marks_.find('\1') != std::string::npos; }

  void append(std::string_view more, bool foreign = false);
  void append(const char* own) { append(std::string_view(own)); }
  void append(const Text& more);
  /// Appends bytes [from, from + count) of `source`.
  void append(const Text& source, std::size_t from, std::size_t count);
  Text substr(std::size_t from, std::size_t count = std::string::npos) const;
  void clear();

  /// Maximal stretches in order; they view into this text.
  std::vector<Segment> segments() const;

  friend bool operator==(const Text& a, const Text& b) { return a.bytes_ == b.bytes_; }

 private:
  std::string bytes_;
  std::string marks_;  ///< empty: nothing is foreign; else one per byte
};

}  // namespace coppice::chat
