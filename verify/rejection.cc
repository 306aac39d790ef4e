#include "verify/rejection-inl.h"

namespace coppice {

std::unique_ptr<AcceptanceRule> make_rejection_rule() {
  return std::make_unique<RejectionRule<PhiloxDecisions>>();
}

}  // namespace coppice
