// Ways of speculating, as --settings of a bench names them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "coppice.h"
#include "engine/policy_options.h"

namespace coppice::bench {

struct Setting {
  std::string name;
  PolicyOptions drafting;
  Acceptance acceptance = Acceptance::rejection;

  std::int32_t tree_size() const { return drafting.tree_size; }
};

/// Plain decoding, then each of a list like "chain:4,dyspec:0:coupled":
/// policy:size[:coupled|:auto][:plain][:lookup|:alone], size 0 being automatic; lookup: with
/// --lookup text, alone: likewise, without the draft. Throws std::runtime_error.
std::vector<Setting> plain_and(const std::string& list);

/// What a setting says of a request, at a temperature.
GenerateOptions request_of(const Setting& setting, double temperature);

}  // namespace coppice::bench
