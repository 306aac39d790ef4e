#include "kernels/cuda_code.h"

#include <algorithm>
#include <charconv>
#include <ranges>

#include "base/error.h"

namespace coppice {
namespace {

/// Whether one name of a module's list is machine code that runs on the card: of the same major
/// version and no later minor one; with a letter, of exactly its version.
bool is_machine_code_for(std::string_view name, int version) {
  int number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error != std::errc()) return false;
  const std::string_view rest(end, static_cast<std::size_t>(name.data() + name.size() - end));
  if (rest.empty()) return number / 10 == version / 10 && number <= version;
  return rest.size() == 1 && number == version;
}

}  // namespace

CardCode card_code(std::string_view product, int major, int minor, std::string_view architectures,
                   bool hopper_kernels) {
  const int version = 10 * major + minor;
  CardCode code;
  code.card = cat(product, ", compute capability ", major, ".", minor);
  const bool machine_code =
      std::ranges::any_of(std::views::split(architectures, ' '), [version](const auto& name) {
        return is_machine_code_for(std::string_view(name.begin(), name.end()), version);
      });
  code.kernels =
      hopper_kernels ? "Hopper kernels (streamed products, wgmma attention)" : "general kernels";
  constexpr const char* remedy = "; build on this machine with -DCOPPICE_CUDA_ARCHITECTURES=native";
  if (version == 90 && !hopper_kernels) {
    code.warning = cat("this build carries code for ", architectures, ", but not the kernels for ",
                       product, " (90a), so it decodes up to a fifth slower here", remedy);
  } else if (!machine_code) {
    code.kernels += ", compiled by the driver from PTX";
    code.warning = cat("this build carries code for ", architectures, ", no machine code for ",
                       product, " (", version,
                       "), so the driver compiles it at the first start, "
                       "which takes minutes",
                       remedy);
  }
  return code;
}

}  // namespace coppice
