// Policies of C as Custom ones.
#pragma once

#include "coppice.h"
#include "coppice_c.h"

namespace coppice::c {

/// Copies the struct.
Custom custom_of(const coppice_policy* policy);

}  // namespace coppice::c
