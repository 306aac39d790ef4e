// From a request to its text: prefill, which brings the first token with it, then step after step,
// until something ends it.
#pragma once

#include "engine/engine_impl.h"

namespace coppice {

/// Goes on with `state`, which holds the text so far, the prompt appended.
Generation decode(Engine::Impl& engine, SequenceState& state, const GenerateOptions& options,
                  const PieceCallback& callback = {});
/// One step's tree, judged; nothing is committed.
JudgedTree judge_first_tree(Engine::Impl& engine, SequenceState& state,
                            const GenerateOptions& options);

}  // namespace coppice
