// Faults that an audit plants to see that its tests would see them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "coppice.h"
#include "engine/access.h"

namespace coppice::study {

struct PlantedFault {
  std::string name;
  std::function<void(EngineAccess&)> plant;
};

/// All that the engine's device supports and that break trees under this acceptance. Coupled
/// acceptance is broken by judging its trees by rejection, on devices that judge on the host.
std::vector<PlantedFault> faults_for(const EngineAccess& engine, Acceptance acceptance);

/// Takes every fault out again at its end.
class FaultGuard {
 public:
  explicit FaultGuard(Engine& engine);
  ~FaultGuard();
  FaultGuard(const FaultGuard&) = delete;
  FaultGuard& operator=(const FaultGuard&) = delete;

 private:
  EngineAccess engine_;
  EngineAccess::RuleMaker rule_;  ///< the former one
};

}  // namespace coppice::study
