// Results of coppice_c.h as Python's values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "handles.h"

namespace coppice_python {

nb::list list_of(const std::int32_t* tokens, std::size_t count);

struct Logprob {
  std::int32_t token;
  double logprob;
  std::vector<std::pair<std::int32_t, double>> top;
};
using Logprobs = std::vector<Logprob>;

Logprobs copy_of(const coppice_token_logprob* const* logprobs, std::size_t count);
/// (token, logprob, [(token, logprob), ...]) of each token; None if there are none.
nb::object list_of(const Logprobs& logprobs);

/// Its samples (dictionaries).
nb::dict dict_of(const coppice_outcome& outcome);
nb::dict dict_of(const coppice_cache_statistics& cache);
// Columns as arrays of numpy.
nb::dict dict_of(const coppice_engine_counts& counts);
nb::dict dict_of(const coppice_tree& tree);

}  // namespace coppice_python
