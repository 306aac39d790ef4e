// Checks JSON byte by byte and tells where it stands.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace coppice::server {

/// Reads one JSON value that arrives in pieces. Strings may hold any bytes that are no control
/// characters; UTF-8 is not checked.
class JsonScanner {
 public:
  static constexpr std::size_t deepest = 200;

  /// Takes one byte. False once the text is no JSON; then nothing else may be fed.
  bool feed(char c);

  /// The value is complete. Numbers and words at the top end nowhere: only a string, list or object
  /// is complete before the text ends.
  bool done() const { return state_ == State::done; }
  /// Lists and objects that are open.
  std::size_t depth() const { return open_.size(); }
  /// A key is being read, its quotes included.
  bool in_key() const { return is_key_ && in_string(); }
  /// The next byte but white space begins a value of an object's member or of a list.
  bool expects_value() const { return state_ == State::value || state_ == State::value_or_end; }
  /// A value has just ended, or numbers and words may go on.
  bool expects_comma() const { return state_ == State::comma_or_end; }

 private:
  enum class State : std::uint8_t {
    value,
    value_or_end,
    key,
    key_or_end,
    colon,
    comma_or_end,
    string,
    escape,
    hex,
    minus,
    zero,
    digits,
    point,
    decimals,
    exponent,
    exponent_sign,
    exponent_digits,
    word,
    done,
    failed,
  };
  bool in_string() const {
    return state_ == State::string || state_ == State::escape || state_ == State::hex;
  }
  State after_value() const { return open_.empty() ? State::done : State::comma_or_end; }
  State begin_value(char c);
  State close(char c);
  State next(char c);
  State number(char c);
  State end_code();

  State state_ = State::value;
  std::string open_;  ///< '{' and '['
  bool is_key_ = false;
  int hex_left_ = 0;
  int code_ = 0;            ///< of \u, as far as it was read
  bool needs_low_ = false;  ///< the second half of a surrogate pair is to follow
  const char* word_ = "";
};

}  // namespace coppice::server
