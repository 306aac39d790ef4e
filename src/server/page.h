// The page at `/`: page.html, as the build put it into the program.
#pragma once

#include <string_view>

namespace coppice::server {

std::string_view page();

}  // namespace coppice::server
