#include "engine/shared_vocabulary.h"

#include <algorithm>
#include <cstdlib>

#include "base/error.h"

namespace coppice {

void require_shared_vocabulary(const EngineOptions& options, const Tokenizer* tokenizer,
                               std::int64_t target_rows, std::int64_t draft_rows) {
  const std::string draft = cat("draft ", quote(options.draft.string()));
  if (tokenizer != nullptr && Tokenizer::is_in(options.draft)) {
    if (!Tokenizer::same_file(options.target, options.draft)) {
      const auto draft_tokenizer = Tokenizer::load(options.draft);
      tokenizer->require_same_pieces(*draft_tokenizer, "target", "draft");
    }
    const std::int64_t pieces = tokenizer->vocabulary_pieces();
    if (std::min(target_rows, draft_rows) >= pieces) return;
    throw_failure(cat(draft, ": the tokenizer has ", pieces, " pieces, the models have ",
                      target_rows, " (target) and ", draft_rows,
                      " (draft) vocabulary rows; use a draft made for the target's tokenizer"));
  }
  // Without tokenizers to compare, sizes must agree up to padding to a multiple of 1024.
  if (std::abs(target_rows - draft_rows) < 1024) return;
  throw_failure(cat(draft, ": its vocabulary has ", draft_rows, " rows, the target's has ",
                    target_rows, "; use a draft made for the target's tokenizer"));
}

}  // namespace coppice
