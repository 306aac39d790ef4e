#include "base/build_commit.h"

#include "base/build_commit_text.h"

namespace coppice {

const char* build_commit() { return COPPICE_BUILD_COMMIT; }

}  // namespace coppice
