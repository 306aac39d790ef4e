#include "engine/access.h"

#include <utility>

#include "engine/decode.h"
#include "engine/engine_impl.h"
#include "engine/loading.h"
#include "sizing/cost_measurement.h"

namespace coppice {

const EngineOptions& EngineAccess::options() const { return impl_.options; }
const Device& EngineAccess::device() const { return *impl_.device; }
const LoadedModel& EngineAccess::target() const { return impl_.target; }
const LoadedModel& EngineAccess::draft() const { return impl_.draft; }
const Tokenizer& EngineAccess::tokenizer() const { return impl_.require_tokenizer(); }

void EngineAccess::check(const GenerateOptions& options) const { impl_.check(options); }

void EngineAccess::check_bytes(std::uint64_t bytes, std::int32_t before, const char* what) const {
  impl_.check_bytes(bytes, before, what);
}

const CostTable* EngineAccess::find_costs(double budget_seconds, const std::stop_token& stop) {
  if (!impl_.costs && impl_.options.cost_table.empty() && can_measure(impl_.target, impl_.draft)) {
    const std::lock_guard lock(impl_.mutex);
    const DeviceScope scope(*impl_.device);
    impl_.costs = measure_costs(impl_.target, impl_.draft, impl_.sampler.get(),
                                impl_.measured_rows(), budget_seconds, stop);
  }
  return impl_.find_costs(stop);
}

SequenceState EngineAccess::new_state(std::span<const TokenId> prompt) const {
  SequenceState sequence = impl_.new_state();
  impl_.append_prompt(sequence, prompt);
  return sequence;
}

Generation EngineAccess::generate(SequenceState& sequence, const GenerateOptions& options) {
  return decode(impl_, sequence, options);
}

EngineAccess::Turn EngineAccess::turn() {
  return {std::unique_lock(impl_.mutex), DeviceScope(*impl_.device), *impl_.target_runner,
          impl_.draft_runner.get()};
}

void EngineAccess::read_by_text(bool by_text) {
  const std::lock_guard lock(impl_.mutex);
  impl_.target_runner->read_by_text(by_text);
}

void EngineAccess::divide(AttentionDivision division) {
  const std::lock_guard lock(impl_.mutex);
  impl_.target_runner->divide(division);
}

std::unique_ptr<TreeJudge> EngineAccess::make_judge() { return impl_.make_judge(); }

StepObserver EngineAccess::observe(StepObserver observer) {
  return std::exchange(impl_.observer, std::move(observer));
}

bool EngineAccess::judges_on_device() const { return impl_.sampler != nullptr; }

EngineAccess::VerifierMaker EngineAccess::judge_by(VerifierMaker maker) {
  return std::exchange(impl_.other_verifier, std::move(maker));
}

void EngineAccess::change_passes(ChangePass change) {
  impl_.target_runner->change_passes(std::move(change));
}
void EngineAccess::plant(DrawingFault fault) { impl_.draft_runner->plant(fault); }
void EngineAccess::plant(DeviceFault fault) { impl_.sampler->plant(fault); }

}  // namespace coppice
