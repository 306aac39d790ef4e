// What an engine does while it loads, for a line of progress.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"
#include "coppice.h"

namespace coppice {

/// "loading target", "waiting for 1 of 2 ranks at HOST:PORT".
inline std::string words_of(const LoadEvent& event) {
  const std::string_view what = event.what;
  const bool loads = what == "target" || what == "draft" || what == "costs";
  return cat(loads ? "loading " : "waiting for ", printable(what));
}

}  // namespace coppice
