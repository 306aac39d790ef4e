// The audit on small pairs: sound engines pass, planted faults make it fail.
#include "study/audit/audit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "engine/engine_impl.h"
#include "engine/pair.h"
#include "study/audit/tests.h"
#include "verify/planted_faults.h"

namespace coppice::study {
namespace {

using testing::TinyModel;
using testing::TinyPair;

TinyModel small_model(double logit_scale = 2.0) {
  TinyModel model;
  model.vocab_size = 12;
  model.layers = 1;
  model.logit_scale = logit_scale;
  model.seed = 5;
  model.bos_token = 0;
  model.eos_tokens = {3};  // must not end a text of an audit
  return model;
}

AuditSetting setting(Speculation speculation, Acceptance acceptance) {
  GenerateOptions options;
  options.speculation = std::move(speculation);
  options.acceptance = acceptance;
  options.sampling.temperature = 1.0;
  return {name_setting(options), options};
}

AuditRequest small_request(std::vector<AuditSetting> settings) {
  AuditRequest request;
  request.settings = std::move(settings);
  request.prompts = {{0, 4, 2, 5}, {0, 7, 1}};
  request.samples = 4000;
  request.compared_tokens = 48;
  request.self_check = false;
  return request;
}

// Takes no child, and at every eighth position another token than the target's argmax:
// where there is a tree, that is, so that plain decoding stays right.
class EighthWrong final : public Verifier {
 public:
  std::string name() const override { return "eighth wrong"; }
  void judge(const TokenTree& tree, TargetSource& target, const DistributionTable& /*draft*/,
             const StepKey& key, Verdict& verdict) override {
    verdict.path.clear();
    verdict.bonus = target.argmax(0);
    if (tree.size() > 0 && key.position % 8 == 0) verdict.bonus = (verdict.bonus + 1) % 12;
  }
};

// Whole numbers of activations that two passes round differently are no loss, and nothing else is
// let through for it.
TEST(Audit, ASoundEngineOnQuantisedWeightsIsLossless) {
  const TinyPair pair(small_model(), 0.6);
  EngineOptions load = pair.options();
  load.cpu_dtype = CpuDtype::automatic;
  load.target_weights = WeightRounding::q4_0;
  load.draft_weights = WeightRounding::q8_0;
  Engine engine = Engine::load(load);
  AuditRequest request = small_request(
      {setting(Dyspec{8}, Acceptance::rejection), setting(Dyspec{8}, Acceptance::coupled)});
  const AuditReport report = run_audit(engine, request);
  EXPECT_TRUE(report.lossless()) << to_text(report, engine);
  EXPECT_EQ(report.dtype, testing::on_cuda() ? "bf16" : "int8");
  for (const LawFinding& law : report.laws) {
    EXPECT_LE(law.pass_variation_largest, law.pass_variation_bound);
  }
}

TEST(Audit, ASoundEngineIsLosslessAndItsTestsSeeFaults) {
  const TinyPair pair(small_model(), 0.6);
  Engine engine = Engine::load(pair.options());
  AuditRequest request = small_request(
      {setting(Dyspec{8}, Acceptance::rejection), setting(Dyspec{8}, Acceptance::coupled)});
  request.self_check = true;
  double last = 0.0;
  request.progress = [&](const std::string& what, double fraction) {
    EXPECT_FALSE(what.empty());
    EXPECT_GT(fraction, 0.0);
    EXPECT_LE(fraction, 1.0);
    last = fraction;
  };
  const AuditReport report = run_audit(engine, request);
  const std::string text = to_text(report, engine);
  EXPECT_TRUE(report.lossless()) << text;
  EXPECT_GT(last, 0.0);
  ASSERT_EQ(report.laws.size(), 2u);
  for (const LawFinding& law : report.laws) {
    EXPECT_GT(law.accepted_length, 1.1);
    EXPECT_EQ(law.samples, 4000);
    EXPECT_GT(law.pass_nodes, 50);
    EXPECT_LE(law.pass_variation_largest, law.pass_variation_bound);
    ASSERT_EQ(law.events.size(), static_cast<std::size_t>(tested_tokens));
    EXPECT_LT(law.events[0].smallest_bias, 0.1);
    EXPECT_EQ(law.events[0].samples, 4000);
  }
  EXPECT_LE(report.smallest_bias_of_first(), report.asked_bias);
  // On a pair that disagrees so much, these show within the samples.
  int caught = 0;
  for (const FaultFinding& fault : report.faults) caught += fault.caught;
  EXPECT_GE(caught, 3) << text;
  ASSERT_EQ(report.texts.size(), 2u);  // temperature 0 once, coupled once
  EXPECT_EQ(report.texts[0].tokens, 96);
  char bias[32];
  std::snprintf(bias, sizeof bias, "a bias of %.3f or more", report.smallest_bias_of_first());
  EXPECT_NE(text.find("Lossless as far as these tests see: " + std::string(bias)),
            std::string::npos)
      << text;

  const auto json = nlohmann::json::parse(to_json(report));
  EXPECT_EQ(json["lossless"], true);
  EXPECT_EQ(json["verdict"], "lossless");
  EXPECT_EQ(json["smallest_bias"], report.smallest_bias());
  EXPECT_GE(report.smallest_bias(), report.smallest_bias_of_first());
  EXPECT_EQ(json["laws"][0]["events"].size(), static_cast<std::size_t>(tested_tokens));
  EXPECT_EQ(json["faults"].size(), report.faults.size());
}

TEST(Audit, AFaultyEngineIsNot) {
  const TinyPair pair(small_model(), 0.6);
  Engine engine = Engine::load(pair.options());
  Engine::Impl& impl = inside(engine);
  const auto request = small_request({setting(Dyspec{8}, Acceptance::rejection)});
  const auto expect_biased = [&](const char* what) {
    const AuditReport report = run_audit(engine, request);
    EXPECT_FALSE(report.law_holds) << what;
    EXPECT_FALSE(report.lossless()) << what;
    EXPECT_NE(to_text(report, engine).find("BIASED"), std::string::npos) << what;
    EXPECT_EQ(report.verdict(), AuditVerdict::biased) << what;
    EXPECT_NE(to_text(report, engine).find("NOT lossless: the law"), std::string::npos) << what;
  };
  impl.draft_runner->plant(DrawingFault::declared_is_not_sampled);
  expect_biased("children from a narrower distribution");
  impl.draft_runner->plant(DrawingFault::none);
  if (testing::on_cuda()) {
    impl.sampler->plant(DeviceFault::accept_without_residual);
    expect_biased("siblings without residual");
    impl.sampler->plant(DeviceFault::none);
  } else {
    impl.other_verifier = [] {
      return make_faulty_rejection_verifier(JudgingFault::declared_is_not_sampled);
    };
    expect_biased("judged by another law");
    impl.other_verifier = nullptr;
  }
  EXPECT_TRUE(run_audit(engine, request).lossless());
}

// A wrong target pass shows without sampling, and in texts at temperature 0.
TEST(Audit, AWrongPassIsSeenAtTheNodes) {
  TinyModel model = small_model();
  model.layers = 2;
  const TinyPair pair(model, 0.3);
  Engine engine = Engine::load(pair.options());
  auto request = small_request({setting(Dyspec{8}, Acceptance::rejection)});
  request.samples = 600;
  inside(engine).target_runner->change_passes(rotate_by_index);
  const AuditReport report = run_audit(engine, request);
  EXPECT_GT(report.laws[0].pass_variation_largest, report.laws[0].pass_variation_bound);
  EXPECT_FALSE(report.laws[0].holds);
  EXPECT_FALSE(report.lossless());
}

TEST(Audit, DivergencesAreCountedWithTheirGaps) {
  if (testing::on_cuda()) GTEST_SKIP() << "planted rules judge on the host";
  const TinyPair pair(small_model(4.0), 0.6);
  Engine engine = Engine::load(pair.options());
  inside(engine).other_verifier = [] { return std::make_unique<EighthWrong>(); };
  const AuditReport report =
      run_audit(engine, small_request({setting(Dyspec{8}, Acceptance::rejection)}));
  const TextFinding& texts = report.texts.at(0);
  EXPECT_FALSE(texts.holds);
  EXPECT_FALSE(report.texts_hold);
  ASSERT_FALSE(texts.divergences.empty());
  EXPECT_EQ(texts.tokens, 96) << "it goes on behind a divergence";
  for (const AuditDivergence& d : texts.divergences) {
    EXPECT_GT(d.gap, 0.0) << "plain text follows the largest logit";
    EXPECT_NE(d.plain, d.speculative);
    EXPECT_EQ(d.near_tie, d.gap <= d.bound);
    EXPECT_GT(d.bound, 0.0);
    EXPECT_LT(d.bound, 1e-2) << "f32 rounds finely";
  }
}

TEST(Audit, AutomaticSamplesAreNeverTooFew) {
  const TinyPair pair(small_model(), 0.6);
  Engine engine = Engine::load(pair.options());
  AuditRequest request = small_request({setting(Chain{2}, Acceptance::rejection)});
  request.samples = 0;
  request.seconds = 1e-9;
  EXPECT_EQ(run_audit(engine, request).laws.at(0).samples, fewest_samples);
}

// Samples are added until the faults are seen, and the engine itself is tested with as many.
TEST(Audit, FaultsSayHowManySamplesItTakes) {
  const TinyPair pair(small_model(), 0.6);
  Engine engine = Engine::load(pair.options());
  AuditRequest request = small_request({setting(Dyspec{8}, Acceptance::rejection)});
  request.samples = 0;
  request.seconds = 0.0;
  request.smallest_bias = 0.15;
  request.self_check = true;
  const AuditReport report = run_audit(engine, request);
  const std::string text = to_text(report, engine);
  EXPECT_EQ(report.verdict(), AuditVerdict::lossless) << text;
  EXPECT_FALSE(report.time_ran_out);
  std::int64_t most = 0;
  for (const FaultFinding& fault : report.faults) {
    EXPECT_NE(fault.caught, fault.small) << fault.fault;
    if (fault.small) {
      EXPECT_LE(fault.most_bias, 0.15) << fault.fault;
    }
    most = std::max(most, fault.drawn);
  }
  EXPECT_LE(report.smallest_bias_of_first(), 0.15) << text;
  EXPECT_GE(report.laws.at(0).samples, most) << text;
}

TEST(Audit, ATimeLimitDecidesNothing) {
  // A draft that is its target: what is broken hardly shows.
  const TinyPair pair(small_model(), 0.02);
  Engine engine = Engine::load(pair.options());
  AuditRequest request = small_request({setting(Dyspec{8}, Acceptance::rejection)});
  request.samples = 0;
  request.seconds = 0.0;
  request.time_limit = 1e-9;
  request.self_check = true;
  const AuditReport report = run_audit(engine, request);
  const std::string text = to_text(report, engine);
  EXPECT_EQ(report.verdict(), AuditVerdict::undecided) << text;
  EXPECT_TRUE(report.time_ran_out);
  EXPECT_TRUE(report.law_holds);
  EXPECT_EQ(report.laws.at(0).samples, fewest_samples);
  EXPECT_FALSE(report.resolves());
  EXPECT_NE(text.find("NOT shown lossless: no bias was found, but the time limit"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("NOT SEEN"), std::string::npos) << text;
  EXPECT_EQ(nlohmann::json::parse(to_json(report))["verdict"], "undecided");
}

TEST(Audit, WithoutATestNothingIsShown) {
  const TinyPair pair(small_model(), 0.6);
  Engine engine = Engine::load(pair.options());
  AuditRequest request = small_request({setting(Chain{2}, Acceptance::rejection)});
  for (const std::int64_t samples : {1, 16}) {  // no context at all; contexts that show no bias
    request.samples = samples;
    const AuditReport report = run_audit(engine, request);
    EXPECT_TRUE(report.law_holds);
    EXPECT_FALSE(report.laws.at(0).not_tested.empty());
    EXPECT_FALSE(report.lossless());
    const std::string text = to_text(report, engine);
    EXPECT_NE(text.find("not tested: no "), std::string::npos) << text;
    EXPECT_EQ(report.verdict(), AuditVerdict::undecided);
    EXPECT_NE(text.find("NOT shown lossless"), std::string::npos) << text;
    EXPECT_NE(text.find("no bias of sampled text was sure to be seen"), std::string::npos) << text;
    EXPECT_TRUE(nlohmann::json::parse(to_json(report))["laws"][0]["not_tested"].is_string());
  }
}

TEST(Audit, TextsThatMemoryEndsAreComparedAsFarAsTheyGo) {
  const TinyPair pair(small_model(), 0.6);
  EngineOptions options = pair.options();
  options.kv_tokens = 32;
  Engine engine = Engine::load(options);
  GenerateOptions request = setting(Chain{2}, Acceptance::rejection).options;
  request.sampling.temperature = 0.0;
  const std::vector<std::vector<TokenId>> prompts = {{0, 4, 2, 5}};
  AuditReport report;
  report.texts.push_back(compare_texts(engine, prompts, request, 60, [] {}));
  const TextFinding& texts = report.texts[0];
  EXPECT_TRUE(texts.holds);
  EXPECT_EQ(texts.asked_tokens, 60);
  EXPECT_GT(texts.tokens, 16);
  EXPECT_LT(texts.tokens, 60);
  EXPECT_FALSE(texts.ended_early.empty());
  EXPECT_TRUE(texts.not_tested.empty());
  EXPECT_NE(to_text(report, engine).find("of 60 tokens were compared"), std::string::npos);
  EXPECT_TRUE(compare_texts(engine, prompts, request, 8, [] {}).ended_early.empty());
}

TEST(Audit, LawsAreThoseOfPlainPasses) {
  const TinyPair pair(small_model(), 0.6);
  Engine engine = Engine::load(pair.options());
  GenerateOptions options;
  options.sampling.temperature = 0.7;
  options.sampling.top_k = 5;
  TargetLaws laws(engine, options);
  const std::vector<TokenId> text = {0, 4, 2};
  EXPECT_EQ(laws.find(text), nullptr);
  const TokenLaw& law = laws.after(text);
  EXPECT_EQ(laws.find(text), &law);
  double sum = 0.0;
  int kept = 0;
  for (const float p : law.probability) {
    sum += static_cast<double>(p);
    kept += p > 0.0f;
  }
  EXPECT_NEAR(sum, 1.0, 1e-5);
  EXPECT_EQ(kept, 5);
  options.logprobs = true;
  options.max_new_tokens = 1;
  options.speculation = Plain{};
  options.ignore_eos = true;
  const auto top = engine.generate(text, options).logprobs.at(0).top.at(0);
  EXPECT_EQ(law.order[0], top.first);
  EXPECT_NEAR(std::log(static_cast<double>(law.probability[static_cast<std::size_t>(top.first)])),
              top.second, 1e-6);
}

// Wherever it is: while it samples, compares texts, or has a fault planted.
TEST(Audit, StoppedItSaysNothing) {
  const TinyPair pair(small_model(), 0.4);
  Engine engine = Engine::load(pair.options());
  AuditRequest request = small_request({setting(Chain{2}, Acceptance::rejection)});
  request.samples = 60;
  request.self_check = true;
  for (const int after : {1, 59, 61, 70}) {
    int asked = 0;
    request.stop = [&] { return ++asked >= after; };
    const AuditReport report = run_audit(engine, request);
    EXPECT_TRUE(report.stopped) << after;
    EXPECT_FALSE(report.lossless());
    EXPECT_EQ(asked, after) << "nothing more was drawn";
    testing::expect_nothing_leaked(engine);
  }
  request.stop = nullptr;
  request.self_check = false;
  request.samples = 4000;
  EXPECT_TRUE(run_audit(engine, request).lossless()) << "no fault stayed planted";
}

TEST(Audit, WrongRequestsAreRefused) {
  const TinyPair pair(small_model(), 0.6);
  Engine engine = Engine::load(pair.options());
  const auto expect_usage = [&](const AuditRequest& request) {
    try {
      run_audit(engine, request);
      ADD_FAILURE() << "was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage) << error.what();
    }
  };
  auto good = small_request({setting(Dyspec{8}, Acceptance::rejection)});
  auto request = good;
  request.settings[0].options.sampling.temperature = 0.0;
  expect_usage(request);
  request = good;
  request.settings[0].options.sampling.temperature = std::nan("");
  expect_usage(request);
  request = good;
  request.settings[0].options.speculation = Plain{};
  expect_usage(request);
  request = good;
  request.settings.clear();
  expect_usage(request);
  request = good;
  request.prompts.clear();
  expect_usage(request);
  request = good;
  request.prompts[1][0] = 12;
  expect_usage(request);
  request = good;
  request.samples = -1;
  expect_usage(request);
  request = good;
  request.settings[0].options.speculation = Dyspec{300};  // above max_tree_size
  expect_usage(request);
}

}  // namespace
}  // namespace coppice::study
