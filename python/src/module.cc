// coppice._coppice: coppice_c.h as the package needs it, which gives it its face.
#include <coppice_c.h>

#include "engine.h"
#include "policy.h"

namespace coppice_python {

nb::object error_of(coppice_status status, const char* message, nb::handle cause) {
  const nb::object errors = nb::module_::import_("coppice.errors");
  nb::object error = errors.attr(status == COPPICE_USAGE ? "UsageError" : "Error")(message);
  if (!cause.is_none()) error.attr("__cause__") = cause;
  return error;
}

void raise(coppice_status status, const char* message, nb::handle cause) {
  const nb::object error = error_of(status, message, cause);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  throw nb::python_error();
}

}  // namespace coppice_python

NB_MODULE(_coppice, module) {
  // What lives until the interpreter ends is no leak.
  nanobind::set_leak_warnings(false);
  module.def("version", coppice_version);
  coppice_python::define_engine(module);
  coppice_python::define_policy(module);
}
