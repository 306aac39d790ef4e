// From options to a finished text.
#pragma once

#include "engine/engine_impl.h"

namespace coppice {

/// Goes on with `state`, which holds the sequence so far, the prompt appended.
Generation decode(Engine::Impl& engine, SequenceState& state, const GenerateOptions& options,
                  const PieceCallback& callback = {});
/// A step's tree with what the target said of it, while `target` holds the pass.
JudgedTree judged_tree(const TokenTree& tree, const Verdict& verdict, TargetRows& target);
/// One step's tree, judged; nothing is committed.
JudgedTree judge_first_tree(Engine::Impl& engine, SequenceState& state,
                            const GenerateOptions& options);

}  // namespace coppice
