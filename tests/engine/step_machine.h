// Steps of texts by runners and judge, without an engine.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <stdexcept>
#include <vector>

#include "drafting/draft_runner.h"
#include "kernels/device.h"
#include "kernels/device_sampler.h"
#include "models/model.h"
#include "reference/backend.h"
#include "reference/random_tokens.h"
#include "reference/tiny_model.h"
#include "verify/target_runner.h"
#include "verify/tree_judge.h"

namespace coppice::testing::steps {

inline constexpr std::int32_t most_texts = 12, most_rows = 256;
inline constexpr std::int64_t vocab = 96;

/// What one text asks for; it also grows its tree, level by level.
struct TextOfStep {
  std::vector<TokenId> prompt;
  SamplingParams target, draft;
  AcceptanceRule rule = AcceptanceRule::rejection;
  StepKey key;
  std::int32_t width = 1, depth = 1;  ///< children of a node, levels of the tree
};

/// All that a step of a text brings.
struct StepResult {
  TokenTree tree;
  std::vector<std::vector<float>> logits;  ///< by node
  Verdict verdict;
};

/// A pair of models, and what makes steps over them.
class Machine {
 public:
  explicit Machine(const Backend& backend) : device_(backend.make()) {
    TinyModel tiny;
    tiny.vocab_size = vocab;
    tiny.logit_scale = 2.0;
    if (!device_->shares_host_memory()) tiny.dtype = DType::bf16;
    testing::write_tiny_model(target_folder_.path(), tiny);
    tiny.layers = 1;
    tiny.noise = 0.3;
    testing::write_tiny_model(draft_folder_.path(), tiny);
    const ModelOptions options{
        .max_rows = most_rows, .max_positions = 200, .max_kv_tokens = 12 * 200};
    target_model_ = Model::load(target_folder_.path(), *device_, options);
    draft_model_ = Model::load(draft_folder_.path(), *device_, options);
    target_pool_ = std::make_unique<KvPool>(*device_, target_model_->kv_layout(4000, 16));
    draft_pool_ = std::make_unique<KvPool>(*device_, draft_model_->kv_layout(4000, 16));
    sampler_ = device_->make_sampler({vocab, vocab, most_rows, most_rows, most_texts});
    cache = std::make_unique<PrefixCache>(*target_pool_, draft_pool_.get());
    target = std::make_unique<TargetRunner>(*target_model_, *target_pool_);
    draft =
        std::make_unique<DraftRunner>(*draft_model_, *draft_pool_,
                                      sampler_ ? make_device_draft_sampling(*sampler_, most_rows)
                                               : make_host_draft_sampling(vocab, vocab, noise_));
    judge = sampler_ ? make_device_judge(*target, *sampler_) : make_host_judge(*target, noise_);
  }

  SequenceState new_text(const TextOfStep& request) const {
    SequenceState state(vocab, *target_pool_, draft_pool_.get());
    for (const TokenId token : request.prompt) state.append(token);
    return state;
  }
  /// The same, sharing what others have computed; the rest of its prompt is computed and shared.
  SequenceState new_shared_text(const TextOfStep& request) const {
    SequenceState state(vocab, *cache);
    for (const TokenId token : request.prompt) state.append(token);
    state.find_shared();
    DraftPrompt missing{&state, request.draft};
    if (!target->prefill(state)) throw std::logic_error("the test's pool is too small");
    state.share(state.target_kv());
    if (!draft->prefill(missing)) throw std::logic_error("the test's pool is too small");
    return state;
  }
  bool all_free() const {
    return target_pool_->free_slots() == target_pool_->layout().slots() &&
           draft_pool_->free_slots() == draft_pool_->layout().slots();
  }
  KvPool& target_pool() { return *target_pool_; }
  KvPool& draft_pool() { return *draft_pool_; }

  /// One step of these texts, in passes that they share.
  std::vector<StepResult> step(const std::vector<TextOfStep>& requests,
                               const std::vector<SequenceState*>& states) {
    const std::size_t count = requests.size();
    std::vector<StepResult> results(count);
    std::vector<StepKey> keys;
    std::vector<DraftRunner::Step> steps;
    for (std::size_t t = 0; t < count; ++t) {
      keys.push_back(requests[t].key);
      keys.back().step = states[t]->steps++;
      keys.back().position = static_cast<std::uint64_t>(states[t]->length());
      steps.push_back(draft->begin(*states[t], keys[t], {requests[t].draft, requests[t].rule}));
      results[t].tree.reset(states[t]->tokens.back());
    }
    grow(requests, steps, results);
    std::vector<TextTree> trees;
    for (std::size_t t = 0; t < count; ++t) {
      trees.push_back({states[t], &results[t].tree, requests[t].target, requests[t].rule, keys[t],
                       &steps[t]->sampler(), &results[t].verdict});
    }
    StepSeconds seconds;
    const TargetRunner::Pass pass = judge->judge(trees, seconds);
    if (!pass) throw std::logic_error("the test's pool is too small");
    for (std::size_t t = 0; t < count; ++t) {
      StepResult& result = results[t];
      for (std::int32_t node = 0; node < result.tree.nodes(); ++node) {
        const auto logits = pass->text(t).logits(node);
        result.logits.emplace_back(logits.begin(), logits.end());
      }
      pass->text(t).commit(result.verdict.path);
      steps[t]->commit(result.tree, result.verdict.path);
      for (const std::int32_t node : result.verdict.path) {
        states[t]->append(result.tree.token[static_cast<std::size_t>(node)]);
      }
      // A planted fault may bring a token that there is none of.
      const TokenId bonus = result.verdict.bonus;
      states[t]->append(bonus >= 0 && bonus < vocab ? bonus : 0);
    }
    return results;
  }

 private:
  // A level of all trees in one pass.
  void grow(const std::vector<TextOfStep>& requests, std::vector<DraftRunner::Step>& steps,
            std::vector<StepResult>& results) {
    std::vector<std::vector<std::int32_t>> level(requests.size(), {0});
    for (std::int32_t depth = 0; depth < 4; ++depth) {
      std::vector<DraftRunner::StepNodes> frontiers;
      for (std::size_t t = 0; t < requests.size(); ++t) {
        if (depth >= requests[t].depth || level[t].empty()) continue;
        frontiers.push_back({steps[t].get(), &results[t].tree, level[t]});
      }
      if (frontiers.empty()) return;
      draft->evaluate(frontiers);
      for (std::size_t t = 0; t < requests.size(); ++t) {
        if (depth >= requests[t].depth) continue;
        TokenTree& tree = results[t].tree;
        std::vector<std::int32_t> next;
        for (const std::int32_t node : level[t]) {
          for (std::int32_t rank = 0; rank < requests[t].width; ++rank) {
            const auto child = steps[t]->child(tree, node, rank);
            if (!child) break;
            next.push_back(tree.add(node, child->token, rank, child->prob, 0.5));
          }
        }
        level[t] = next;
      }
    }
  }

  TemporaryFolder target_folder_, draft_folder_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Model> target_model_, draft_model_;
  std::unique_ptr<KvPool> target_pool_, draft_pool_;
  std::unique_ptr<DeviceSampler> sampler_;
  NoiseCache noise_{vocab};

 public:
  std::unique_ptr<PrefixCache> cache;  ///< of texts that share
  std::unique_ptr<TargetRunner> target;
  std::unique_ptr<DraftRunner> draft;
  std::unique_ptr<TreeJudge> judge;
};

/// Texts that differ in everything.
inline std::vector<TextOfStep> mixed_texts(std::size_t count, std::mt19937& random) {
  std::vector<TextOfStep> requests(count);
  for (std::size_t t = 0; t < count; ++t) {
    TextOfStep& r = requests[t];
    r.prompt = random_tokens(1 + random() % 12, vocab, random());
    r.rule = static_cast<AcceptanceRule>(t % 3);
    const bool greedy = r.rule == AcceptanceRule::greedy;
    r.target = {greedy ? 0.0 : 0.5 + 0.2 * static_cast<double>(t % 4)};
    if (t % 4 == 1) r.target.top_k = 20;
    if (t % 4 == 3) r.target.top_p = 0.8;
    if (t % 2 == 0) r.target.repetition_penalty = 1.0 + 0.2 * static_cast<double>(1 + t % 5);
    r.draft = r.target;
    if (greedy) r.draft.temperature = 0.45;
    r.key.seed = 7 + t % 2;
    r.key.sequence = t;
    r.width = 1 + static_cast<std::int32_t>(t % 3);
    r.depth = static_cast<std::int32_t>(t % 4);
  }
  return requests;
}

}  // namespace coppice::testing::steps
