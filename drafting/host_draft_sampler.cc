#include "drafting/child_drawer.h"
#include "drafting/host_draft_sampler-inl.h"

namespace coppice {

std::unique_ptr<DraftSampling> make_host_draft_sampling(std::int64_t vocab_size,
                                                        std::int64_t draft_vocab,
                                                        NoiseCache& noise) {
  return std::make_unique<HostDraftSampling<PhiloxDecisions>>(vocab_size, draft_vocab, noise);
}

}  // namespace coppice
