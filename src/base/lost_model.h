// The failure after which a model can be used no more.
#pragma once

#include <exception>
#include <string>

#include "base/error.h"

namespace coppice {

/// A rank of the model, or the file of its layers, is lost: whatever is asked of it from now on
/// fails, and would do with the model that is loaded again.
class LostModel final : public Error {
 public:
  explicit LostModel(const std::string& message) : Error(ErrorKind::failure, message) {}
};

/// Its message; "" for other failures, and for none.
inline std::string lost_model_message(const std::exception_ptr& failure) {
  if (failure == nullptr) return "";
  try {
    std::rethrow_exception(failure);
  } catch (const LostModel& lost) {
    return lost.what();
  } catch (...) {
    return "";
  }
}

}  // namespace coppice
