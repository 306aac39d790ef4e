#pragma once

#include <memory>

#include "models/kv/kv_pool.h"
#include "models/model.h"

namespace coppice {

/// One model and its KV memory.
struct LoadedModel {
  std::unique_ptr<Model> model;
  std::unique_ptr<KvPool> pool;
};

}  // namespace coppice
