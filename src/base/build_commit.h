// Which commit a program was built from.
#pragma once

namespace coppice {

/// Returns what `git describe` said of the sources when the program was built: "v0.2.0-5-g355beac",
/// "355beac1d2" without a tag, with "-dirty" behind it if files differed from the commit; "unknown"
/// for sources outside a git repository of their own, or without git.
const char* build_commit();

}  // namespace coppice
