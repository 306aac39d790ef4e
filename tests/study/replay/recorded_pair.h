// Recordings of small pairs, for tests of files and replays.
#pragma once

#include <algorithm>
#include <vector>

#include "engine/engine_impl.h"
#include "engine/pair.h"
#include "study/replay/recorder.h"
#include "study/replay/replay.h"

namespace coppice::testing {

/// Prompts of a tiny model, all different.
inline std::vector<std::vector<TokenId>> tiny_prompts(std::int32_t count) {
  std::vector<std::vector<TokenId>> prompts;
  for (std::int32_t i = 0; i < count; ++i) prompts.push_back({1, 5 + i % 90, 17, 3 + i / 90, 40});
  return prompts;
}

inline study::Recording record_all(Engine& engine, const study::RecordOptions& options,
                                   const std::vector<std::vector<TokenId>>& prompts) {
  study::Recorder recorder(engine, options);
  study::Recording recording;
  recording.header = recorder.header(prompts);
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    recording.texts.push_back(recorder.record(static_cast<std::int32_t>(i), prompts[i], {}));
  }
  return recording;
}

/// The same as read from a file: links from entries to nodes are made in reading.
inline study::Recording through_file(const study::Recording& recording) {
  const TemporaryFolder folder;
  study::RecordingWriter writer(folder.path() / "recording", recording.header);
  for (const study::RecordedText& text : recording.texts) writer.append(text);
  return study::read_recording(folder.path() / "recording");
}

/// The steps of one walk over a text.
inline std::vector<study::ReplayedStep> steps_of(study::Replayer& replayer,
                                                 const study::RecordedText& text,
                                                 std::uint64_t seed) {
  std::vector<study::ReplayedStep> steps;
  replayer.replay(text, seed, 1,
                  [&](std::uint64_t, const study::ReplayedStep& step) { steps.push_back(step); });
  return steps;
}

/// One step of a real run.
struct RealStep {
  std::int32_t position = 0, accepted_length = 0, tree_size = 0, draft_passes = 0, looked_up = 0;
};

/// The steps of a generation from the prompt on.
inline std::vector<RealStep> real_steps(Engine& engine, const std::vector<TokenId>& prompt,
                                        const GenerateOptions& options) {
  std::vector<RealStep> steps;
  inside(engine).observer = [&](const StepView& view) {
    if (!view.is_step()) return;
    steps.push_back(
        {view.state.length() - static_cast<std::int32_t>(prompt.size()),
         static_cast<std::int32_t>(view.verdict.path.size()) + 1, view.tree.size(),
         static_cast<std::int32_t>(view.draft_passes),
         static_cast<std::int32_t>(std::ranges::count(view.tree.origin, Origin::lookup))});
  };
  engine.generate(prompt, options);
  inside(engine).observer = {};
  return steps;
}

}  // namespace coppice::testing
