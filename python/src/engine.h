// Python's native classes.
#pragma once

#include "handles.h"

namespace coppice_python {

void define_engine(nb::module_& module);

}  // namespace coppice_python
