#include "server/engine_backend.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/fingerprint.h"
#include "base/host_memory.h"
#include "base/lost_model.h"
#include "chat.h"
#include "engine/access.h"
#include "engine/decode.h"
#include "models/config.h"
#include "server/constraint_cache.h"
#include "server/prompt_logprobs.h"

namespace coppice::server {
namespace {

constexpr std::size_t most_constraints = 64;
constexpr std::size_t most_template_bytes = std::size_t{1} << 20;

class SubmittedJob final : public Job {
 public:
  explicit SubmittedJob(Submission submission) : submission_(std::move(submission)) {}
  void cancel() override { submission_.cancel(); }

 private:
  Submission submission_;
};

/// Who wants to see the trees of which texts. A step says which random numbers it has and what its
/// text begins with.
class TreeWatch {
 public:
  struct Watched {
    std::uint64_t seed, first_stream;
    std::int32_t samples;
    std::vector<TokenId> prompt;
    std::function<void(std::int32_t sample, const JudgedTree&)> judged;
  };

  void add(std::shared_ptr<const Watched> text) {
    const std::lock_guard lock(mutex_);
    texts_.push_back(std::move(text));
    count_ = texts_.size();
  }
  void remove(const std::shared_ptr<const Watched>& text) {
    const std::lock_guard lock(mutex_);
    std::erase(texts_, text);
    count_ = texts_.size();
  }
  void see(const StepView& view) {
    if (count_ == 0 || !view.is_step()) return;
    const std::lock_guard lock(mutex_);
    for (const auto& text : texts_) {
      const std::uint64_t sample = view.key.sequence - text->first_stream;
      const std::vector<TokenId>& tokens = view.state.tokens;
      const bool same = view.key.seed == text->seed && std::cmp_less(sample, text->samples) &&
                        tokens.size() >= text->prompt.size() &&
                        std::equal(text->prompt.begin(), text->prompt.end(), tokens.begin());
      if (!same) continue;
      text->judged(static_cast<std::int32_t>(sample),
                   judged_tree(view.tree, view.verdict, view.target));
    }
  }

 private:
  std::atomic<std::size_t> count_ = 0;
  std::mutex mutex_;
  std::vector<std::shared_ptr<const Watched>> texts_;
};

class EngineBackend final : public Backend {
 public:
  EngineBackend(Engine& engine, const std::filesystem::path& chat_template,
                std::function<void(const std::string& why)> lost)
      : engine_(engine), access_(engine), constraints_(most_constraints), lost_(std::move(lost)) {
    const EngineOptions& options = access_.options();
    facts_.target = options.target.string();
    facts_.draft = options.draft.string();
    facts_.context_length = engine.context_length();
    facts_.vocab_size = engine.vocab_size();
    facts_.parallel = options.max_sequences;
    facts_.max_tree_size = options.max_tree_size;
    facts_.kv_tokens = static_cast<std::int32_t>(engine.cache().target_slots);
    facts_.device = access_.device().name();
    const ModelConfig& config = access_.target().model->config();
    if (config.bos_token >= 0) facts_.bos_text = token(config.bos_token).bytes;
    if (!config.eos_tokens.empty()) facts_.eos_text = token(config.eos_tokens.front()).bytes;
    read_template(chat_template);
    Fingerprint print;
    print.add(version());
    print.add(fingerprint_of_folder(options.target));
    facts_.fingerprint = "fp_" + print.text().substr(0, 12);
    access_.observe([this](const StepView& view) { trees_.see(view); });
    access_.target().model->on_loss(lost_);
  }
  ~EngineBackend() override {
    access_.target().model->on_loss({});
    access_.observe({});
  }

  const BackendFacts& facts() const override { return facts_; }

  std::shared_ptr<Job> submit(Request request, TextEvents events) override {
    std::shared_ptr<const TreeWatch::Watched> watched;
    if (events.judged) {
      watched = std::make_shared<const TreeWatch::Watched>(TreeWatch::Watched{
          request.options.seed, request.options.stream, request.n, request.tokens, events.judged});
      trees_.add(watched);
      events.finished = [this, watched, finished = std::move(events.finished)](Outcome& outcome) {
        trees_.remove(watched);
        finished(outcome);
      };
    }
    // Requests may end after this has.
    events.finished = [lost = lost_, finished = std::move(events.finished)](Outcome& outcome) {
      const std::string loss = lost_model_message(outcome.error);
      finished(outcome);
      if (!loss.empty()) lost(loss);
    };
    try {
      return std::make_shared<SubmittedJob>(
          engine_.submit(std::move(request), std::move(events.finished)));
    } catch (...) {
      if (watched != nullptr) trees_.remove(watched);  // a refused request never finishes
      throw;
    }
  }

  std::vector<TokenId> tokenize(std::string_view text, bool add_special) const override {
    access_.check_bytes(text.size(), 0);
    return engine_.tokenize(text, add_special);
  }
  std::string detokenize(std::span<const TokenId> tokens) const override {
    return engine_.detokenize(tokens);
  }
  TokenText token(TokenId token) const override {
    const Tokenizer& tokenizer = access_.tokenizer();
    const std::string bytes = tokenizer.bytes_of(token);
    if (bytes.empty()) return {std::string(tokenizer.piece(token)), true};
    return {bytes, false};
  }

  std::vector<TokenId> chat_tokens(const ChatPrompt& prompt) const override {
    ChatOptions options;
    options.tools = prompt.tools;
    options.values = prompt.values;
    options.add_generation_prompt = prompt.add_generation_prompt;
    options.continue_final_message = prompt.continue_final_message;
    return chat_->tokens(engine_, prompt.messages, options);
  }
  std::vector<TokenLogprob> prompt_logprobs(std::span<const TokenId> prompt,
                                            std::int32_t top) override {
    try {
      return server::prompt_logprobs(engine_, prompt, top);
    } catch (const LostModel& loss) {
      lost_(loss.what());
      throw;
    }
  }
  bool template_reads(std::string_view name) const override { return chat_ && chat_->takes(name); }

  Constraint constraint(const constraints::ConstraintSource& source) override {
    return constraints_.build(engine_, source);
  }
  EngineStatistics statistics() const override {
    EngineStatistics now = engine_.statistics();
    for (const auto count :
         {&EngineStatistics::passes, &EngineStatistics::steps, &EngineStatistics::new_tokens,
          &EngineStatistics::drafted, &EngineStatistics::accepted, &EngineStatistics::preempted}) {
      now.*count -= before_.*count;
    }
    for (const auto counts :
         {&EngineStatistics::drafted_by_depth, &EngineStatistics::accepted_by_depth}) {
      const std::vector<std::int64_t>& before = before_.*counts;
      for (std::size_t depth = 0; depth < before.size(); ++depth) {
        (now.*counts)[depth] -= before[depth];
      }
      while (!(now.*counts).empty() && (now.*counts).back() == 0) (now.*counts).pop_back();
    }
    return now;
  }

 private:
  void read_template(const std::filesystem::path& file) {
    const std::filesystem::path& target = access_.options().target;
    if (!file.empty()) {
      chat_ = Chat::from_source(read_file(file, "chat-template", most_template_bytes), target);
    } else {
      try {
        chat_ = Chat::of(target);
      } catch (const HostMemoryError&) {
        throw;
      } catch (const Error&) {
        return;  // a model without one writes completions
      }
    }
    facts_.chat_template = chat_->source();
  }

  Engine& engine_;
  const EngineStatistics before_ = engine_.statistics();
  EngineAccess access_;
  BackendFacts facts_;
  std::optional<Chat> chat_;
  ConstraintCache constraints_;
  TreeWatch trees_;
  const std::function<void(const std::string& why)> lost_;
};

}  // namespace

std::unique_ptr<Backend> make_engine_backend(Engine& engine,
                                             const std::filesystem::path& chat_template,
                                             std::function<void(const std::string& why)> lost) {
  return std::make_unique<EngineBackend>(engine, chat_template, std::move(lost));
}

}  // namespace coppice::server
