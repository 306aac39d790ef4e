#include "engine/engine_impl.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/stopwatch.h"
#include "engine/check_speculation.h"
#include "engine/constraint_impl.h"
#include "engine/driver.h"
#include "engine/loading.h"
#include "engine/scheduler.h"
#include "sizing/constants.h"
#include "sizing/cost_cache.h"
#include "sizing/cost_measurement.h"

namespace coppice {
namespace {

// What gives a sequence all of the context that the model allows; "" if it has that.
std::string longer_context(const Model& model) {
  const std::int32_t most = model.config().context_length;
  if (model.max_positions() >= most) return "";
  return cat("raise kv_tokens (--kv-tokens; the model allows ", most, ")");
}

}  // namespace

Engine::Impl::Impl() : scheduler(std::make_unique<Scheduler>(*this)) {}
Engine::Impl::~Impl() = default;

Driver& Engine::Impl::driver() {
  const std::lock_guard lock(driver_mutex_);
  if (driver_ == nullptr) driver_ = std::make_unique<Driver>(*this);
  return *driver_;
}

std::int32_t Engine::Impl::unopened() const {
  const std::lock_guard lock(driver_mutex_);
  return driver_ == nullptr ? 0 : driver_->unopened();
}

void Engine::Impl::check_token(const char* option, TokenId token) const {
  const std::int64_t vocab = target.model->config().vocab_size;
  if (token >= 0 && token < vocab) return;
  throw_usage(cat(option, ": token ", token, " is outside the target's vocabulary of ", vocab,
                  " (0 to ", vocab - 1, ")"));
}

void Engine::Impl::check(const GenerateOptions& request) const {
  request.validate();
  check_fits(request.speculation, options.max_tree_size);
  check_lookup(request);
  if (!request.stop.empty()) require_tokenizer();
  for (const TokenId token : request.stop_tokens) check_token("stop-tokens", token);
  for (const auto& [token, added] : request.logit_bias) check_token("logit-bias", token);
  const auto* const ruling = ConstraintAccess::generations(request.constraint);
  if (ruling == nullptr) return;
  if (request.ignore_eos) {
    throw_usage(
        "ignore_eos: a text under a constraint ends by an end token; leave one of the two out");
  }
  if (&ruling->vocabulary() != vocabulary().get()) {
    throw_usage("constraint: it was built for another engine; build it with this one");
  }
}

std::shared_ptr<const constraints::Vocabulary> Engine::Impl::vocabulary() const {
  const Tokenizer& pieces = require_tokenizer();
  const std::lock_guard lock(vocabulary_mutex);
  if (vocabulary_of_tokenizer == nullptr) {
    vocabulary_of_tokenizer =
        std::make_shared<constraints::Vocabulary>(pieces, target.model->config().eos_tokens);
  }
  return vocabulary_of_tokenizer;
}

MeasuredRows Engine::Impl::measured_rows() const {
  const std::int32_t tree = tree_rows(options);
  return {tree, options.max_sequences > 1 ? std::max(tree, batch_rows(options)) : tree};
}

const CostTable* Engine::Impl::find_costs(const std::stop_token& stop) {
  std::unique_lock lock(mutex);
  const DeviceScope scope(*device);
  const MeasuredRows rows = measured_rows();
  // Without a draft nobody asks what its passes cost: the target stands in.
  const LoadedModel& drafting = draft.model != nullptr ? draft : target;
  DeviceSampler* const drawing = draft.model != nullptr ? sampler.get() : nullptr;
  // A cut table is replaced, in its place, as soon as there is room for a better one.
  const auto are_found = [&] {
    return costs && !(costs->cut && can_measure_all(target, drafting, rows));
  };
  if (costs && !costs->cut) return &*costs;
  // What nobody uses makes room: for a better one only if that is enough.
  const PrefixCache::Slots wanted{slots_to_measure_all(target, rows),
                                  slots_to_measure_all(drafting, rows)};
  const PrefixCache::Slots idle = cache->counts().evictable;
  const bool enough = target.pool->free_slots() + idle.target >= wanted.target &&
                      drafting.pool->free_slots() + idle.draft >= wanted.draft;
  if (!costs || enough) cache->evict(wanted);
  if (are_found()) return &*costs;
  const double start = now_seconds();
  std::optional<CostTable> found;
  const std::string fingerprint = cost_fingerprint(*target.model, *drafting.model);
  if (!options.cost_table.empty()) found = read_cost_table(options.cost_table, fingerprint);
  if (!found && !can_measure(target, drafting)) return nullptr;
  std::filesystem::path folder;  // that measured costs are kept in
  std::optional<CostTable> kept;
  std::string key;
  if (!found && options.cost_table.empty() && options.cost_cache) {
    folder = cost_cache_folder();
    key = cost_cache_key(options, target, drafting);
    kept = cached_costs(folder, key);
    const TableCheck check =
        kept ? check_table(*kept, target, drafting, drawing, rows, stop) : TableCheck::differs;
    if (check != TableCheck::differs) found = kept;
    if (check == TableCheck::disturbed) correction.doubt_machine();
    if (check == TableCheck::holds && std::exchange(kept->doubts, 0) > 0) {
      cache_costs(folder, key, *kept);
    }
  }
  bool tells = false;
  const auto tell = [&](double fraction) {
    if (!tells) return;
    lock.unlock();
    options.progress({"costs", fraction});
    lock.lock();
  };
  if (!found) {
    // The listener may call this engine, which then measures; it hears of it once.
    tells = options.progress && !told_of_costs.exchange(true);
    tell(0.0);
    if (are_found()) return &*costs;
    // The listener's sequences may have taken the memory.
    if (!can_measure(target, drafting)) return costs ? &*costs : nullptr;
    found = measure_costs(target, drafting, drawing, rows, SizingConstants::budget_seconds, stop);
    if (!found) {
      if (tells) told_of_costs = false;
      return costs ? &*costs : nullptr;
    }
    if (!found->cut) {
      if (!options.cost_table.empty()) write_cost_table(options.cost_table, *found);
      cache_costs(folder, key, kept ? table_to_keep(*kept, *found) : *found);
    }
  }
  costs = std::move(found);
  load_seconds.store(load_seconds.load() + now_seconds() - start);
  tell(1.0);  // last: the listener may generate, or throw
  return &*costs;
}

BatchSizer& Engine::Impl::batch_sizes() {
  if (!batch_sizer) batch_sizer.emplace(*costs, costs_are_saved ? nullptr : &correction);
  return *batch_sizer;
}

std::unique_ptr<TreeJudge> Engine::Impl::make_judge() {
  if (other_verifier) {
    if (sampler)
      throw_failure("planted rules read distributions on the host; this device has none");
    return make_host_judge(*target_runner, other_verifier());
  }
  return sampler ? make_device_judge(*target_runner, *sampler)
                 : make_host_judge(*target_runner, *noise);
}

const Tokenizer& Engine::Impl::require_tokenizer() const {
  if (tokenizer == nullptr) throw_failure(no_tokenizer);
  return *tokenizer;
}

std::vector<TokenId> Engine::Impl::encode(std::string_view prompt, bool add_bos) const {
  return encode_after({}, prompt, add_bos);
}

std::vector<TokenId> Engine::Impl::encode_after(std::span<const TokenId> tokens,
                                                std::string_view prompt, bool add_bos) const {
  const Tokenizer& t = require_tokenizer();
  if (prompt.empty()) throw_usage("prompt: it is empty; give some text to continue");
  if (!tokens.empty()) return t.encode(prompt, tokens.back());
  std::vector<TokenId> begun = t.encode(prompt);
  return add_bos ? t.framed(std::move(begun)) : begun;
}

void Engine::Impl::check_bytes(std::uint64_t bytes, std::int32_t before, const char* what) const {
  const Tokenizer& t = require_tokenizer();
  const std::int32_t context = target.model->max_positions();
  const auto left = static_cast<std::uint64_t>(std::max(0, context - before));
  const std::uint64_t most = t.most_bytes(left);
  if (bytes <= most) return;
  const std::string longer = longer_context(*target.model);
  throw RoomError(ErrorKind::usage,
                  cat(what, ": ", bytes, " bytes are too many for the ", left,
                      " tokens that the context of ", context, " has left, which hold at most ",
                      most, " bytes; shorten it", longer.empty() ? "" : cat(" or ", longer)));
}

void Engine::Impl::append_prompt(SequenceState& state, std::span<const TokenId> prompt) const {
  if (prompt.empty() && state.tokens.empty()) {
    throw_usage("prompt: it holds no tokens; give at least one");
  }
  if (prompt.empty()) return;  // if there is no room, the sequence ends at once and says why
  for (const TokenId token : prompt) check_token("prompt", token);
  const auto length = state.tokens.size() + prompt.size();
  const std::int32_t context = target.model->max_positions(), slots = target.pool->layout().slots();
  const bool beyond_context = length >= static_cast<std::size_t>(context);
  if (beyond_context || length > static_cast<std::size_t>(slots)) {
    const std::int32_t left = std::min(context - 1, slots) - state.length();
    const std::string longer = longer_context(*target.model);
    std::string remedy = cat("shorten it to at most ", left, left == 1 ? " token" : " tokens");
    if (left < 1) {
      remedy = state.length() > 0 ? "begin a new sequence" : "use a model with a longer context";
    }
    if (!beyond_context) {
      remedy = cat("raise kv_tokens (--kv-tokens) or ", remedy);
    } else if (!longer.empty()) {
      remedy = longer;
    }
    throw RoomError(
        ErrorKind::usage,
        cat("prompt: ", length, " tokens", state.length() > 0 ? " with those before it" : "",
            beyond_context ? cat(" leave no room in the context of ", context)
                           : cat(" do not fit the ", slots, " KV slots"),
            "; ", remedy));
  }
  for (const TokenId token : prompt) state.append(token);
}

}  // namespace coppice
