// `coppice study compare` and `coppice study merge`: studies that are there already.
#pragma once

#include <string>
#include <vector>

namespace coppice::cli {

int study_compare(const std::vector<std::string>& arguments);
int study_merge(const std::vector<std::string>& arguments);

}  // namespace coppice::cli
