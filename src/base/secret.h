// Comparing what somebody gave with what only some may know.
#pragma once

#include <cstddef>
#include <string_view>

namespace coppice {

/// Takes as long for all that is as long as `given`.
inline bool is_secret(std::string_view given, std::string_view secret) {
  volatile unsigned char differs = given.size() == secret.size() ? 0 : 1;
  for (std::size_t i = 0; i < given.size(); ++i) {
    const char other = secret.empty() ? '\0' : secret[i % secret.size()];
    differs = static_cast<unsigned char>(differs | (given[i] ^ other));
  }
  return differs == 0;
}

}  // namespace coppice
