// make_cuda_device(), has_cuda_device() and cuda_code(): by way of the module, if a GPU answers.
#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <cstdlib>
#include <system_error>

#include "base/error.h"
#include "kernels/cuda_module.h"

namespace coppice {
namespace {

namespace fs = std::filesystem;

std::string linker_error() {
  const char* const said = dlerror();
  return said == nullptr ? "the dynamic linker does not say why" : said;
}

/// Why dlopen(file) failed, without what the message around it says anyway.
std::string why_not_opened(const std::string& file = {}) {
  std::string said = linker_error();
  constexpr std::string_view absent = ": cannot open shared object file: No such file or directory";
  if (said.ends_with(absent)) {
    said.erase(said.size() - absent.size());
    said += " is not there";
  }
  if (said.starts_with(file + ": ")) said.erase(0, file.size() + 2);
  return said;
}

/// Why the NVIDIA driver counts no GPU; empty if it counts one. Asked without the CUDA runtime,
/// which is in the module.
std::string why_no_gpu() {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr) return cat("no NVIDIA driver is installed (", why_not_opened(), ")");
  using Init = int (*)(unsigned flags);
  using Count = int (*)(int* count);
  using Name = int (*)(int status, const char** text);
  const auto init = reinterpret_cast<Init>(dlsym(driver, "cuInit"));
  const auto count_devices = reinterpret_cast<Count>(dlsym(driver, "cuDeviceGetCount"));
  const auto describe = reinterpret_cast<Name>(dlsym(driver, "cuGetErrorString"));
  if (init == nullptr || count_devices == nullptr) {
    return "libcuda.so.1 is no NVIDIA driver: it lacks cuInit and cuDeviceGetCount";
  }
  constexpr int no_device = 100;  // CUDA_ERROR_NO_DEVICE
  int count = 0;
  int status = init(0);
  if (status == 0) status = count_devices(&count);
  if (status == no_device || (status == 0 && count == 0)) return "no NVIDIA GPU is visible";
  if (status == 0) return "";
  const char* text = nullptr;
  if (describe != nullptr) (void)describe(status, &text);
  return cat("the NVIDIA driver does not start: ", text == nullptr ? "error" : text, " (", status,
             ")");
}

/// What the user set COPPICE_CUDA_MODULE to; empty if it is unset.
std::string chosen_module() {
  const char* const chosen = secure_getenv("COPPICE_CUDA_MODULE");
  return chosen == nullptr ? "" : chosen;
}

/// Whether the dynamic linker finds a module by its name, be it one that lacks a library.
bool linker_finds_module() {
  if (dlopen(cuda_module_name, RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE) != nullptr) return true;
  return linker_error().rfind(cat(cuda_module_name, ":"), 0) != 0;
}

/// The program or shared library that holds this code; empty if that cannot be told.
fs::path holder_of_this_code() {
  Dl_info info;
  link_map* map = nullptr;
  if (dladdr1(reinterpret_cast<const void*>(&cuda_module_places), &info,
              reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) == 0) {
    return {};
  }
  std::error_code error;
  const fs::path file =
      fs::canonical(map->l_name[0] == '\0' ? "/proc/self/exe" : map->l_name, error);
  return error ? fs::path() : file;
}

/// What the search for the module, and for a GPU, came to.
struct Backend {
  const CudaModule* module = nullptr;
  fs::path file;         ///< the module, whether it can be used or not; empty if none was found
  std::string why_not;   ///< if there is no module
  bool refused = false;  ///< the module that is there cannot be used
};

Backend find_module() {
  Backend backend;
  const auto open = [&](const fs::path& file) {
    backend.file = file;
    try {
      backend.module = &open_cuda_module(file);
    } catch (const std::exception& error) {
      backend.why_not = error.what();
      backend.refused = true;
    }
    return backend;
  };
  std::string looked;
  for (const fs::path& place : cuda_module_places()) {
    std::error_code ignored;
    if (fs::exists(place, ignored)) return open(place);
    looked += (looked.empty() ? "" : ", ") + quote(place.string());
  }
  const bool chosen = !chosen_module().empty();
  if (!chosen && linker_finds_module()) return open(cuda_module_name);
  backend.refused = chosen;
  backend.why_not = cat("the CUDA module ", cuda_module_name, " was not found (looked in ", looked,
                        "); install a coppice that was built with CUDA, or set "
                        "COPPICE_CUDA_MODULE to its module");
  return backend;
}

/// Opens the module, with or without a GPU.
const Backend& module_at_hand() {
  static const Backend found = find_module();
  return found;
}

/// Opens the module where a GPU answers.
const Backend& backend() {
  static const Backend found = [] {
    Backend none;
    none.why_not = why_no_gpu();
    return none.why_not.empty() ? module_at_hand() : none;
  }();
  return found;
}

}  // namespace

std::vector<fs::path> cuda_module_places() {
  if (const fs::path chosen = chosen_module(); !chosen.empty()) {
    std::error_code ignored;
    return {fs::is_directory(chosen, ignored) ? chosen / cuda_module_name : chosen};
  }
  std::vector<fs::path> folders;
  if (const fs::path holder = holder_of_this_code(); !holder.empty()) {
    const fs::path folder = holder.parent_path();
    folders = {folder, folder / "coppice", (folder / COPPICE_RELATIVE_MODULES).lexically_normal()};
  }
  folders.emplace_back(COPPICE_INSTALLED_MODULES);
  std::vector<fs::path> places;
  for (const fs::path& folder : folders) {
    const fs::path place = folder / cuda_module_name;
    if (std::find(places.begin(), places.end(), place) == places.end()) places.push_back(place);
  }
  return places;
}

const CudaModule& open_cuda_module(const fs::path& file) {
  const auto refuse = [&](const auto&... why) {
    throw_failure(cat("the CUDA module ", quote(file.string()), " ", why...));
  };
  void* const handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr) {
    const std::string why = why_not_opened(file.string());
    const bool cublas = why.find("libcublas") != std::string::npos;
    const bool library = why.starts_with("lib") && why.ends_with(" is not there");
    refuse("cannot be loaded: ", why,
           cublas    ? "; install cuBLAS of that version, or put its folder on LD_LIBRARY_PATH"
           : library ? "; install it, or put its folder on LD_LIBRARY_PATH"
                     : "; install program and module from one build");
  }
  using Entry = const CudaModule* (*)();
  const auto entry = reinterpret_cast<Entry>(dlsym(handle, cuda_module_entry));
  if (entry == nullptr) refuse("is none: it lacks ", cuda_module_entry, "()");
  const CudaModule* module = nullptr;
  try {
    module = entry();
  } catch (...) {
    refuse("failed to start");
  }
  if (module == nullptr || module->build == nullptr) refuse("offers nothing");
  if (std::string(module->build) != cuda_module_build()) {
    refuse("is of another build (", quote(module->build), ", this is ", quote(cuda_module_build()),
           "); install both from one build");
  }
  return *module;
}

bool has_cuda_device(std::string* why_not, bool* present) {
  const Backend& found = backend();
  const auto no = [&](const std::string& why, bool gpu) {
    if (why_not != nullptr) *why_not = why;
    if (present != nullptr) *present = gpu;
    return false;
  };
  if (found.module == nullptr) return no(found.why_not, found.refused);
  try {
    return found.module->has_device(why_not, present);
  } catch (const std::exception& error) {
    return no(error.what(), true);
  }
}

int cuda_device_count() { return has_cuda_device() ? backend().module->device_count() : 0; }

CudaCode cuda_code() {
  const Backend& found = module_at_hand();
  CudaCode code;
  code.file = found.file.string();
  code.why_not = found.why_not;
  if (found.module == nullptr) return code;
  code.architectures = found.module->architectures;
  try {
    if (has_cuda_device()) code.card = found.module->card_code();
  } catch (const std::exception& error) {
    code.why_not = error.what();
  }
  return code;
}

std::unique_ptr<Device> make_cuda_device(const CudaOptions& options) {
  const Backend& found = backend();
  if (found.module != nullptr) return found.module->make_device(options);
  const bool has_remedy = found.why_not.find("; ") != std::string::npos;
  throw_failure(
      cat("--device cuda: ", found.why_not, has_remedy ? ", or" : ";", " use --device cpu"));
}

}  // namespace coppice
