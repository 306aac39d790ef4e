// A tiny model whose distributions are steep enough that a draft is accepted now and then.
#pragma once

#include "reference/tiny_model.h"

namespace coppice::testing {

inline TinyModel peaky() {
  TinyModel model;
  model.logit_scale = 2.0;
  return model;
}

}  // namespace coppice::testing
