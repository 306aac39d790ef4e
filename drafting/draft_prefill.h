// The draft's passes over prompts, of one text or of several.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "drafting/draft_sampler.h"
#include "models/kv/pass_layout.h"
#include "models/model.h"
#include "models/sequence_state.h"

namespace coppice {

/// A text whose tokens the draft is to have KV of, all but the last.
struct DraftPrompt {
  SequenceState* state = nullptr;
  SamplingParams params = {};  ///< of the probabilities that the prompt likelihood is measured with
  // Received:
  /// Mean probability that the draft gave to the last tokens, at most 16: next to nothing for a
  /// draft that does not know the language. Unchanged if nothing was missing, or next to nothing.
  double likelihood = 1.0;
  /// Rows in the pass made; none for a text that had no room in it, or waits for what another text
  /// in it computes for both.
  std::int32_t rows = 0;
  bool out_of_slots = false;  ///< the pool has too few; what was computed stays

  static std::int32_t missing(const SequenceState& text) {
    return std::max(0, text.length() - 1 - text.draft_kv());
  }
  bool done() const { return out_of_slots || missing(*state) == 0; }
};

class DraftPrefill {
 public:
  /// All outlive this.
  DraftPrefill(Model& model, KvPool& pool, DraftSampling& sampling)
      : model_(model), pool_(pool), sampling_(sampling) {}

  /// One pass over as many missing tokens, in the order of the texts, as it may have rows. False:
  /// nothing was missing, or there were no slots; there was no pass.
  bool pass(std::span<DraftPrompt> prompts);

 private:
  bool add(DraftPrompt& prompt);
  void list(std::int32_t index);
  void clear();

  Model& model_;
  KvPool& pool_;
  DraftSampling& sampling_;
  struct Part {
    DraftPrompt* prompt;
    std::int32_t before;   ///< tokens with KV before the pass
    std::int32_t scored;   ///< of the rows, the last
    const CacheNode* gap;  ///< the first shared node that the rows fill; null: none
    KvSlots slots;         ///< by row
  };
  void keep(Part& part);
  std::vector<Part> parts_;
  SamplingParams params_;
  PassLayout layout_;
  std::vector<KvSegment> segments_;
  std::vector<KvSlot> write_slots_;
  std::vector<std::int32_t> positions_, logit_rows_;
  std::vector<TokenId> tokens_, next_;
  std::vector<float> scores_;
  std::int32_t rows_ = 0, scored_ = 0;
};

}  // namespace coppice
