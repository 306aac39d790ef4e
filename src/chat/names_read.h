// Which names a template reads of those it is given.
#pragma once

#include <set>
#include <string>

#include "chat/syntax.h"

namespace coppice::chat {

/// Names that expressions read, but for what a macro's parameters or a loop's targets bind there.
std::set<std::string> names_read(const Block& body);

}  // namespace coppice::chat
