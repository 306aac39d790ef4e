// Results as handles.
#pragma once

#include <memory>

#include "c/handles.h"

namespace coppice::c {

std::unique_ptr<coppice_outcome> handle_of(Outcome outcome);

}  // namespace coppice::c
