// Loads the library's code for products before they are met. CUDA loads a kernel at its first
// launch, which takes milliseconds, and a batch's first second meets a hundred of them: so a thread
// runs each product's code once, on little data of its own, while the host reads weights.
#pragma once

#include <memory>
#include <span>

#include "kernels/device.h"

namespace coppice::cuda {

class ProductProposals;

/// Works on the current device of the thread that made it. What fails to load is left to the
/// product's own first run.
class CodeLoader {
 public:
  /// Leaves in `proposals`, which outlive this, what the library proposes.
  explicit CodeLoader(ProductProposals& proposals);
  /// Stops before the next product, and waits until then.
  ~CodeLoader();
  CodeLoader(const CodeLoader&) = delete;
  CodeLoader& operator=(const CodeLoader&) = delete;

  /// Returns at once. Of row counts those that products run at (linear.h) beyond what is streamed
  /// where `streams`.
  void load(std::span<const ExpectedProduct> products, bool streams);
  /// Waits until all is loaded (tests).
  void finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace coppice::cuda
