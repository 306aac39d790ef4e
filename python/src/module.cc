// coppice._coppice: coppice_c.h as the package needs it, which gives it its face.
#include <coppice_c.h>

#include "engine.h"

namespace coppice_python {

void raise(coppice_status status, const char* message) {
  const nb::object errors = nb::module_::import_("coppice.errors");
  const nb::object type = errors.attr(status == COPPICE_USAGE ? "UsageError" : "Error");
  PyErr_SetString(type.ptr(), message);
  throw nb::python_error();
}

}  // namespace coppice_python

NB_MODULE(_coppice, module) {
  // What lives until the interpreter ends is no leak.
  nanobind::set_leak_warnings(false);
  module.def("version", coppice_version);
  coppice_python::define_engine(module);
}
