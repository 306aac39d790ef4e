// The prompts that come with the project.
#pragma once

#include <string>
#include <vector>

namespace coppice::testing {

/// The 100 of bench/prompts/prompts.jsonl.
std::vector<std::string> prompts();

}  // namespace coppice::testing
