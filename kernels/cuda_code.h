// Which machine code the CUDA module carries, and which kernels the card at hand gets of it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace coppice {

/// The kernels that one card gets.
struct CardCode {
  std::string card;     ///< "NVIDIA H200, compute capability 9.0"
  std::string kernels;  ///< one phrase: "Hopper kernels (streamed products, wgmma attention)"
  /// Empty, or one sentence: the build lacks the card's best code; what that costs; the remedy.
  std::string warning;
};

/// Chooses the phrase and the warning for a card. `architectures` is the module's list, names
/// parted by spaces: "80 90a 120 120-ptx" ("-ptx": the driver compiles it at the first start).
/// `hopper_kernels`: the module's kernels for compute capability 9.0a answered on this card.
CardCode card_code(std::string_view product, int major, int minor, std::string_view architectures,
                   bool hopper_kernels);

/// The CUDA module, opened even where no GPU answers.
struct CudaCode {
  std::string file;              ///< the module; empty if none was found
  std::string architectures;     ///< as card_code() takes them
  std::string why_not;           ///< why the module was not opened; empty if it was
  std::optional<CardCode> card;  ///< empty without a usable GPU
};

/// Finds and opens the module, for `info` and `--version`. Does not throw for a module that is
/// missing or broken: why_not says so.
CudaCode cuda_code();

}  // namespace coppice
