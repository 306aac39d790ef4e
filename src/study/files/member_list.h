// A struct's members by name, once for all that reads, writes or compares them.
#pragma once

#include <boost/preprocessor/seq/for_each.hpp>
#include <boost/preprocessor/stringize.hpp>
#include <boost/preprocessor/variadic/to_seq.hpp>

#include "base/sampling_params.h"

#define COPPICE_VISIT_MEMBER(r, self, name) visit(BOOST_PP_STRINGIZE(name), self.name);

/// In a struct: a static members(self, visit) that calls visit(name, member) for each of these
/// members, in this order. members.h makes JSON objects of such structs.
#define COPPICE_MEMBERS(...)                                                                 \
  static void members(auto& self, auto visit) {                                              \
    BOOST_PP_SEQ_FOR_EACH(COPPICE_VISIT_MEMBER, self, BOOST_PP_VARIADIC_TO_SEQ(__VA_ARGS__)) \
  }

namespace coppice::study {

/// How logits become a distribution, as files keep it.
struct StoredSampling : SamplingParams {
  COPPICE_MEMBERS(temperature, top_k, top_p, min_p, repetition_penalty)
};

}  // namespace coppice::study
