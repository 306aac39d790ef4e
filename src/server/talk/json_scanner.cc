#include "server/talk/json_scanner.h"

#include <string_view>

#include "base/hex.h"
#include "server/talk/words.h"

namespace coppice::server {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

bool JsonScanner::feed(char c) {
  state_ = next(c);
  return state_ != State::failed;
}

JsonScanner::State JsonScanner::begin_value(char c) {
  switch (c) {
    case '{':
    case '[':
      if (open_.size() == deepest) return State::failed;
      open_.push_back(c);
      return c == '{' ? State::key_or_end : State::value_or_end;
    case '"':
      is_key_ = false;
      return State::string;
    case '-':
      return State::minus;
    case '0':
      return State::zero;
    case 't':
      word_ = "rue";
      return State::word;
    case 'f':
      word_ = "alse";
      return State::word;
    case 'n':
      word_ = "ull";
      return State::word;
    default:
      return is_digit(c) ? State::digits : State::failed;
  }
}

JsonScanner::State JsonScanner::close(char c) {
  const bool fits = (c == '}' && open_.back() == '{') || (c == ']' && open_.back() == '[');
  if (!fits) return State::failed;
  open_.pop_back();
  return after_value();
}

JsonScanner::State JsonScanner::number(char c) {
  const bool has_digits = state_ == State::zero || state_ == State::digits ||
                          state_ == State::decimals || state_ == State::exponent_digits;
  if (is_digit(c)) {
    switch (state_) {
      case State::minus:
        return c == '0' ? State::zero : State::digits;
      case State::zero:
        return State::failed;
      case State::digits:
        return State::digits;
      case State::point:
      case State::decimals:
        return State::decimals;
      default:
        return State::exponent_digits;
    }
  }
  if (c == '.' && (state_ == State::zero || state_ == State::digits)) return State::point;
  if ((c == 'e' || c == 'E') && has_digits && state_ != State::exponent_digits) {
    return State::exponent;
  }
  if ((c == '+' || c == '-') && state_ == State::exponent) return State::exponent_sign;
  if (!has_digits || open_.empty()) return State::failed;
  state_ = State::comma_or_end;
  return next(c);
}

// Half of a surrogate pair is no character, and no JSON that others read.
JsonScanner::State JsonScanner::end_code() {
  const int half = code_ & 0xfc00;
  if ((half == 0xdc00) != needs_low_) return State::failed;
  needs_low_ = half == 0xd800;
  return State::string;
}

JsonScanner::State JsonScanner::next(char c) {
  switch (state_) {
    case State::string:
      if (needs_low_ && c != '\\') return State::failed;
      if (c == '"') return is_key_ ? State::colon : after_value();
      if (c == '\\') return State::escape;
      return static_cast<unsigned char>(c) < 0x20 ? State::failed : State::string;
    case State::escape:
      hex_left_ = 4;
      code_ = 0;
      if (c == 'u') return State::hex;
      if (needs_low_) return State::failed;
      return std::string_view("\"\\/bfnrt").find(c) != std::string_view::npos ? State::string
                                                                              : State::failed;
    case State::hex:
      if (hex_digit(c) < 0) return State::failed;
      code_ = 16 * code_ + hex_digit(c);
      return --hex_left_ == 0 ? end_code() : State::hex;
    case State::word:
      if (c != *word_) return State::failed;
      return *++word_ == '\0' ? after_value() : State::word;
    case State::minus:
    case State::zero:
    case State::digits:
    case State::point:
    case State::decimals:
    case State::exponent:
    case State::exponent_sign:
    case State::exponent_digits:
      return number(c);
    default:
      break;
  }
  if (is_white(c)) return state_;
  switch (state_) {
    case State::value_or_end:
      return c == ']' ? close(c) : begin_value(c);
    case State::value:
      return begin_value(c);
    case State::key_or_end:
      if (c == '}') return close(c);
      [[fallthrough]];
    case State::key:
      is_key_ = true;
      return c == '"' ? State::string : State::failed;
    case State::colon:
      return c == ':' ? State::value : State::failed;
    case State::comma_or_end:
      if (c != ',') return close(c);
      return open_.back() == '{' ? State::key : State::value;
    default:
      return State::failed;
  }
}

}  // namespace coppice::server
