// Results as handles.
#pragma once

#include "c/handles.h"

namespace coppice::c {

/// Fills a handle, which was made before the texts were written, so that memory which runs out in
/// the end loses neither a sample beside another nor the word that the request has ended.
void fill(coppice_outcome& handle, Outcome outcome) noexcept;

}  // namespace coppice::c
