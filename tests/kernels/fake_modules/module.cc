// CUDA modules that are wrong in one way each, FAKE_KIND, and one (0) that is right but whose
// devices cannot be made.
#include <new>

#include "base/error.h"
#include "kernels/cuda_module.h"

enum Kind { right, other_build, throws, no_entry, undefined_symbol, missing_library };

extern "C" void coppice_tests_define_this_nowhere();
extern "C" int fake_cublas();

namespace {

[[maybe_unused]] std::unique_ptr<coppice::Device> make_device(const coppice::CudaOptions& options) {
  if (!options.record) throw std::bad_alloc();
  coppice::throw_failure("the fake module makes no devices");
}

[[maybe_unused]] bool has_device(std::string* why_not, bool* present) {
  if (why_not != nullptr) *why_not = "the fake module's GPU is too old";
  if (present != nullptr) *present = true;
  return false;
}

[[maybe_unused]] coppice::CardCode card_code() { return {}; }

[[maybe_unused]] int device_count() { return 0; }

}  // namespace

#if FAKE_KIND != 3
extern "C" __attribute__((visibility("default"))) const coppice::CudaModule* coppice_cuda_module() {
  static const coppice::CudaModule module = {
      FAKE_KIND == other_build ? "0.0.1-other" : coppice::cuda_module_build(),
      make_device,
      has_device,
      "80 90",
      card_code,
      device_count};
#if FAKE_KIND == 2
  throw 1;
#elif FAKE_KIND == 4
  coppice_tests_define_this_nowhere();
#elif FAKE_KIND == 5
  fake_cublas();
#endif
  return &module;
}
#endif
