#include "cli/out_of_memory.h"

#include <cxxabi.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <typeinfo>

namespace coppice::cli {
namespace {

const std::terminate_handler usual_end = std::get_terminate();

}  // namespace

void end_out_of_memory() noexcept {
  const std::type_info* type = abi::__cxa_current_exception_type();
  if (type == nullptr || *type != typeid(std::bad_alloc)) {
    usual_end();
    std::abort();
  }
  std::fputs(out_of_memory_line, stderr);  // takes no memory
  std::_Exit(1);
}

}  // namespace coppice::cli
