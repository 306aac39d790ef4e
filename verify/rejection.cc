#include "verify/rejection-inl.h"

namespace coppice {

std::unique_ptr<Verifier> make_rejection_verifier() {
  return std::make_unique<RejectionVerifier<PhiloxDecisions>>();
}

}  // namespace coppice
