// Whether a draft speaks the target's language.
#pragma once

#include <cstdint>

#include "coppice.h"
#include "models/tokenizer/tokenizer.h"

namespace coppice {

/// Throws Error(failure), which names the first difference, unless token ids mean the same to the
/// models of both folders, of so many vocabulary rows. Vocabularies that differ only by padded rows
/// are fine: ids past the tokenizer's pieces mean nothing in either. `tokenizer`: the target's;
/// null if it has none that can be read.
void require_shared_vocabulary(const EngineOptions& options, const Tokenizer* tokenizer,
                               std::int64_t target_rows, std::int64_t draft_rows);

}  // namespace coppice
