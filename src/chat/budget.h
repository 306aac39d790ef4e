// What one rendering may still use.
#pragma once

#include <cstddef>

namespace coppice::chat {

/// Bounds the work and the memory of a rendering, whatever its template does. It is charged where
/// texts and values are made and where texts are looked through, so that no operation can forget
/// to. A hostile template ends in TemplateError.
class Budget {
 public:
  /// What is in force on this thread while it lives. `input`: bytes that the template works on;
  /// the more they are, the more it may do.
  explicit Budget(std::size_t input);
  Budget(std::size_t steps, std::size_t bytes);
  ~Budget();
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  std::size_t steps_left() const { return looks_ / looks_in_step; }
  std::size_t bytes_left() const { return bytes_; }

  // These charge the rendering that runs on this thread, if there is one.

  /// Anything that takes about 100 ns: an expression, an item.
  static void spend_steps(std::size_t count) {
    if (current_ == nullptr) return;
    if (count > current_->looks_ / looks_in_step) current_->no_steps();
    current_->looks_ -= count * looks_in_step;
  }
  /// Bytes, code points or names that are looked at one by one.
  static void look_at(std::size_t count) {
    if (current_ == nullptr) return;
    if (count > current_->looks_) current_->no_steps();
    current_->looks_ -= count;
  }
  /// Memory that is filled, even if it is freed again.
  static void spend_bytes(std::size_t count) {
    if (current_ == nullptr) return;
    if (count > current_->bytes_) current_->no_bytes();
    current_->bytes_ -= count;
  }
  /// Throws if there is not enough for `times` texts of `size` bytes, which will be charged when
  /// they are made.
  static void expect_bytes(std::size_t size, std::size_t times);

 private:
  static constexpr std::size_t looks_in_step = 16;
  [[noreturn]] void no_steps() const;
  [[noreturn]] void no_bytes() const;

  static inline constinit thread_local Budget* current_ = nullptr;

  const std::size_t all_steps_, all_bytes_;
  std::size_t looks_, bytes_;
  Budget* outer_;
};

}  // namespace coppice::chat
