// Where the draft's distributions of a tree lie, for whoever judges it.
#pragma once

#include <cstdint>

#include "base/distributions.h"

namespace coppice {

class DraftEvidence {
 public:
  virtual ~DraftEvidence() = default;
  /// D by TokenTree::candidate where the host holds it; nullptr where a device does.
  virtual const DistributionTable* distributions() const { return nullptr; }
  /// Row of the device's store that holds D of a TokenTree::candidate; -1 for none.
  virtual std::int32_t store_row(std::int32_t /*candidate*/) const { return -1; }
};

}  // namespace coppice
