// Joining a message and what helps.
#pragma once

#include <string>
#include <string_view>

namespace coppice {

/// Puts a remedy behind a message of another's: "MESSAGE; remedy", or "MESSAGE? Remedy" behind one
/// that ends as a sentence. `remedy` begins with a small letter.
std::string with_remedy(std::string_view message, std::string_view remedy);

}  // namespace coppice
