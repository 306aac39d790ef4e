// Damage to files, at random but the same in every run.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace coppice::testing {

/// Changes one to six places of a text: single bits and bytes, cuts, repetitions, parts put
/// elsewhere, numbers at the edges of their types, pieces of syntax.
class Mutator {
 public:
  explicit Mutator(std::uint32_t seed) : random_(seed) {}

  std::string mutate(std::string bytes) {
    for (std::size_t changes = 1 + below(6); changes > 0; --changes) change(bytes);
    return bytes;
  }
  std::size_t below(std::size_t end) { return end == 0 ? 0 : random_() % end; }

 private:
  void change(std::string& bytes) {
    const std::size_t at = below(bytes.size() + 1);
    const std::size_t some = 1 + below(below(8) == 0 ? bytes.size() + 1 : 12);
    switch (below(9)) {
      case 0:
        if (at < bytes.size()) bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
        break;
      case 1:
        if (at < bytes.size()) bytes[at] = static_cast<char>(random_());
        break;
      case 2:
        bytes.erase(at, some);
        break;
      case 3:
        bytes.insert(at, bytes.substr(below(bytes.size() + 1), some));
        break;
      case 4:
        bytes.insert(at, syntax());
        break;
      case 5:
        if (below(4) == 0) bytes.resize(at);
        break;
      case 6: {
        const std::size_t from = bytes.find_first_of("0123456789", at);
        if (from == std::string::npos) break;
        const std::size_t to = bytes.find_first_not_of("0123456789", from);
        bytes.replace(from, (to == std::string::npos ? bytes.size() : to) - from, number());
        break;
      }
      case 7: {
        // Four bytes of a binary file.
        const auto value =
            static_cast<std::uint32_t>(below(2) == 0 ? 0xfffffff0u + below(16) : 1u << below(32));
        for (std::size_t i = 0; i < 4 && at + i < bytes.size(); ++i) {
          bytes[at + i] = static_cast<char>(value >> (8 * i));
        }
        break;
      }
      default: {
        const std::string part = bytes.substr(at, some);
        bytes.erase(at, some);
        bytes.insert(below(bytes.size() + 1), part);
      }
    }
    constexpr std::size_t largest = 1 << 20;
    if (bytes.size() > largest) bytes.resize(largest);
  }

  std::string number() {
    static const std::vector<std::string> numbers = {"0",
                                                     "-1",
                                                     "1",
                                                     "2147483647",
                                                     "2147483648",
                                                     "4294967296",
                                                     "1e308",
                                                     "1e999",
                                                     "9223372036854775807",
                                                     "18446744073709551615",
                                                     "-0.0",
                                                     "1e-320",
                                                     "0.5",
                                                     "-9223372036854775808",
                                                     "18446744073709551616",
                                                     "65536",
                                                     "1073741824",
                                                     "3",
                                                     "1048577",
                                                     "NaN"};
    return numbers[below(numbers.size())];
  }
  std::string syntax() {
    static const std::vector<std::string> pieces = {"{",
                                                    "}",
                                                    "[",
                                                    "]",
                                                    ",",
                                                    ":",
                                                    "\"",
                                                    "null",
                                                    "true",
                                                    "[]",
                                                    "{}",
                                                    "\\u0000",
                                                    "\x1b[2J",
                                                    "\xc2\x9b",
                                                    "\xe2\x80\xae",
                                                    "\n",
                                                    "\r\n",
                                                    "\xff",
                                                    "\\ud800",
                                                    "\"a\":",
                                                    "[[[[[[[[",
                                                    "{\"a\":{\"a\":"};
    return below(8) == 0 ? std::string(1 + below(100), '[') : pieces[below(pieces.size())];
  }

  std::mt19937 random_;
};

}  // namespace coppice::testing
