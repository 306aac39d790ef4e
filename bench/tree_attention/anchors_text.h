#pragma once

namespace coppice::bench {

extern const char* const anchors_csv;  ///< generated from anchors.csv

}  // namespace coppice::bench
