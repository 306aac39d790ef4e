// Records the distributions around a text, position by position.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "drafting/lookup.h"
#include "engine/access.h"
#include "study/replay/recording.h"

namespace coppice::study {

struct RecordOptions {
  /// Temperature, filters, penalty, seed, draft temperature, max_new_tokens; what they say of
  /// drafting is ignored. End tokens are ignored, so that all texts are equally long.
  GenerateOptions generate;
  std::int32_t nodes = 256;  ///< per position, the root included; 1 to max_tree_size + 1
  std::int32_t top_k = 16;   ///< K: children of each order, and tokens beside them
};

/// Runs one engine's models over texts. The engine must do nothing else meanwhile.
class Recorder {
 public:
  /// Called after every position, with the share of this text that is done. False: stop.
  using Progress = std::function<bool(double done)>;

  /// Throws Error(usage) for options out of range, an engine without a draft, and one on a GPU:
  /// the draft's distributions are read on the host.
  Recorder(Engine& engine, const RecordOptions& options);

  /// What the file says of a recording of these prompts.
  RecordingHeader header(std::span<const std::vector<TokenId>> prompts) const;

  /// Has the target write a text by plain decoding under coupled noise (which is sampling by its
  /// own law; stream `prompt`), then records every position of it. The text ends early where the
  /// context or the KV memory does. Fewer positions than tokens: `progress` stopped it.
  /// Throws Error(usage) for a prompt that does not fit, Error(failure) where slots run out.
  RecordedText record(std::int32_t prompt, std::span<const TokenId> tokens,
                      const Progress& progress);

 private:
  void record_position(SequenceState& state, TokenId next, RecordedPosition& out);

  Engine& engine_;
  RecordOptions options_;
  SamplingParams target_params_, draft_params_;
  std::uint64_t stream_ = 0;
  NoiseCache noise_;
  SuffixIndex index_{};  ///< of the text up to the position
};

}  // namespace coppice::study
