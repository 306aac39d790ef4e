// Advice for people and for programs.
#pragma once

#include <string>

#include "study/advise/advise.h"

namespace coppice::study {

/// Options of `coppice generate` that choose what is advised: "--policy chain --tree-size 4".
std::string policy_options(const Advice& advice);
/// Plain text of several lines. `command` is the advised command line in full.
std::string to_text(const Advice& advice, const std::string& command);
/// One JSON object in one line.
std::string to_json(const Advice& advice, const std::string& command);

}  // namespace coppice::study
