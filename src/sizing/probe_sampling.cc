#include "sizing/probe_sampling.h"

#include <vector>

namespace coppice {
namespace {

const SamplingParams usual_params = {1.0, 0, 1.0, 0.0, 1.0};

class DrawProbe final : public ProbeSampling {
 public:
  DrawProbe(DeviceSampler& sampler, std::int32_t store_rows)
      : sampler_(sampler), store_rows_(store_rows) {}

  PassEpilogue* stage(std::int32_t rows) override {
    rows_.clear();
    for (std::int32_t r = 0; r < rows; ++r) {
      rows_.push_back({r % store_rows_, r, 0, child_node_key(root_node_key, r)});
    }
    DrawText text;
    text.params = usual_params;
    sampler_.stage_draw({{&text, 1}, rows_});
    return &sampler_.draw_epilogue();
  }
  void collect() override {
    drawn_.resize(rows_.size());
    sampler_.collect_draw(drawn_);
  }

 private:
  DeviceSampler& sampler_;
  std::int32_t store_rows_;
  std::vector<DrawRow> rows_;
  std::vector<DrawnChildren> drawn_;
};

class JudgeProbe final : public ProbeSampling, DraftEvidence {
 public:
  JudgeProbe(DeviceSampler& sampler, std::int64_t vocab, std::int32_t store_rows)
      : sampler_(sampler), vocab_(vocab), store_rows_(store_rows) {}

  PassEpilogue* stage(std::int32_t rows) override {
    const auto token = [&](std::int32_t r) { return static_cast<TokenId>((r * 37 + 11) % vocab_); };
    tree_.reset(token(0));
    for (std::int32_t r = 1; r < rows; ++r) tree_.add(r - 1, token(r), 0, 1.0f, 1.0);
    order_.assign(tree_);
    JudgeText text;
    text.params = usual_params;
    text.tree = &tree_;
    text.order = &order_;
    text.draft = this;
    sampler_.stage_judge({&text, 1});
    return &sampler_.judge_epilogue();
  }
  void collect() override { sampler_.collect_verdicts({&verdict_, 1}); }

 private:
  std::int32_t store_row(std::int32_t candidate) const override { return candidate % store_rows_; }

  DeviceSampler& sampler_;
  std::int64_t vocab_;
  std::int32_t store_rows_;
  TokenTree tree_;
  TreeOrder order_;
  DeviceVerdict verdict_;
};

}  // namespace

std::unique_ptr<ProbeSampling> make_draw_probe(DeviceSampler& sampler, std::int32_t store_rows) {
  return std::make_unique<DrawProbe>(sampler, store_rows);
}

std::unique_ptr<ProbeSampling> make_judge_probe(DeviceSampler& sampler, std::int64_t target_vocab,
                                                std::int32_t store_rows) {
  return std::make_unique<JudgeProbe>(sampler, target_vocab, store_rows);
}

}  // namespace coppice
