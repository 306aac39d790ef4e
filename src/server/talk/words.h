// What separates and limits the words of a call.
#pragma once

#include <cstddef>
#include <string_view>

namespace coppice::server {

inline constexpr std::string_view white = " \t\r\n";
inline bool is_white(char c) { return white.find(c) != std::string_view::npos; }

/// In bytes, of tools and arguments. What goes on longer is no call.
inline constexpr std::size_t longest_name = 256;

}  // namespace coppice::server
