// What one rendering of a template may take.
#pragma once

#include <cstddef>

namespace coppice::chat {

/// It is charged where texts and values are made, and where texts are looked through, so that no
/// operation can forget to. Beyond it a rendering ends in TemplateError. So a hostile template
/// takes a second or so and 256 MiB; long messages may take more, by their length.
class Budget {
 public:
  /// `given`: bytes of the texts that the rendering begins with.
  explicit Budget(std::size_t given);
  ~Budget();
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  // Charge the rendering that runs on this thread, if there is one.
  static void spend_steps(std::size_t count);
  static void spend_bytes(std::size_t count);
  /// So many bytes of text are looked through.
  static void look_at(std::size_t bytes) { spend_steps(bytes / 16); }
  /// Throws as spend_bytes() would, and spends nothing: before a loop that makes them.
  static void expect_bytes(std::size_t count);

 private:
  std::size_t steps_, bytes_;
  Budget* outer_;
};

}  // namespace coppice::chat
