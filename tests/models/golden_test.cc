// Logits and greedy tokens against Hugging Face transformers (tests/golden/make_golden.py).
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_file.h"
#include "models/safetensors.h"
#include "models/tokenizer/tokenizer.h"
#include "reference/backend.h"
#include "reference/chain_runner.h"
#include "reference/naive_device.h"

namespace coppice {
namespace {

namespace fs = std::filesystem;
using testing::all_rows;
using testing::Backend;
using testing::ChainRunner;
using testing::cpu;

const fs::path source = COPPICE_SOURCE_DIR;
const fs::path golden = source / "tests/golden/data";

const std::vector<Backend> backends = {
    {"naive", testing::make_naive_device},
    {"f32", [] { return cpu(DType::f32); }},
    {"bf16", [] { return cpu(DType::bf16); }},
    testing::cuda,
};

template <typename Value>
std::vector<Value> values_of(const SafetensorsFile& file, const std::string& name) {
  const StoredTensor& tensor = file.tensors().at(name);
  std::vector<Value> values(tensor.elements());
  file.read(tensor, 0, std::as_writable_bytes(std::span(values)));
  return values;
}

double rms_of(std::span<const float> values) {
  double squares = 0.0;
  for (const float value : values) squares += double{value} * value;
  return std::sqrt(squares / static_cast<double>(values.size()));
}

TokenId argmax(const std::vector<float>& logits) {
  return static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

/// Follows the golden continuation; wherever its gap exceeds the tolerance the model must choose
/// the same token. (The tolerance is six deviations of one logit, so 4.2 of a difference.) Returns
/// how many choices were too close to call.
int follow_greedy(ChainRunner& run, const nlohmann::json& sequence, std::vector<KvSlot> prefix,
                  std::vector<float> logits, double tolerance) {
  const auto chosen = sequence.at("greedy").get<std::vector<TokenId>>();
  const auto gaps = sequence.at("gaps").get<std::vector<double>>();
  int near_ties = 0;
  for (std::size_t step = 0; step < chosen.size(); ++step) {
    if (gaps[step] > tolerance) {
      EXPECT_EQ(argmax(logits), chosen[step]) << "step " << step << ", gap " << gaps[step];
    } else {
      ++near_ties;
    }
    const auto slots = run.chain({chosen[step]}, prefix, {0});
    prefix.insert(prefix.end(), slots.begin(), slots.end());
    logits = run.logits.front();
  }
  return near_ties;
}

class TinyGolden : public ::testing::TestWithParam<Backend> {};
class ShippedGolden : public ::testing::TestWithParam<Backend> {};

TEST_P(TinyGolden, EveryVariantAgreesWithTransformers) {
  if (const auto why = testing::lacking(GetParam()); !why.empty()) GTEST_SKIP() << why;
  int variants = 0, steps = 0, near_ties = 0;
  double worst = 0.0;
  ASSERT_TRUE(fs::is_directory(golden)) << "golden data is missing: " << golden;
  for (const auto& folder : fs::directory_iterator(golden)) {
    if (!fs::exists(folder.path() / "config.json")) continue;
    SCOPED_TRACE(folder.path().filename().string());
    ++variants;
    const auto about = read_json_object(folder.path() / "golden.json", 1 << 20);
    const SafetensorsFile stored(folder.path() / "golden.safetensors");
    int index = 0;
    for (const auto& sequence : about->at("sequences")) {
      ChainRunner run(folder.path(), GetParam().make(),
                      {.max_rows = 40, .max_positions = about->value("positions", 0)});
      const auto tokens = sequence.at("tokens").get<std::vector<TokenId>>();
      const auto wanted = values_of<float>(stored, "logits_" + std::to_string(index++));
      const double bound = testing::logit_tolerance(run.model->config(),
                                                    run.device->compute_dtype(), rms_of(wanted));
      const auto slots = run.chain(tokens, {}, all_rows(tokens.size()));
      const std::size_t vocab = run.logits.front().size();
      ASSERT_EQ(wanted.size(), tokens.size() * vocab);
      for (std::size_t i = 0; i < wanted.size(); ++i) {
        const double error = std::fabs(double{run.logits[i / vocab][i % vocab]} - wanted[i]);
        worst = std::max(worst, error / bound);
        ASSERT_LE(error, bound) << "token " << i / vocab << ", logit " << i % vocab;
      }
      near_ties += follow_greedy(run, sequence, slots, run.logits.back(), bound);
      steps += static_cast<int>(sequence.at("greedy").size());
    }
  }
  EXPECT_EQ(variants, 29);
  std::cout << variants << " variants, largest error " << worst << " of the tolerance, "
            << near_ties << " of " << steps << " greedy steps too close to call\n";
}

TEST_P(ShippedGolden, ThePairAgreesWithTransformers) {
  if (const auto why = testing::lacking(GetParam()); !why.empty()) GTEST_SKIP() << why;
  for (const char* name : {"target", "draft"}) {
    SCOPED_TRACE(name);
    const fs::path model = source / "models/stories" / name;
    const fs::path folder = golden / (std::string("stories_") + name);
    ASSERT_TRUE(fs::exists(folder)) << "golden data is missing: " << folder;
    const auto about = read_json_object(folder / "golden.json", 1 << 20);
    const SafetensorsFile stored(folder / "golden.safetensors");
    const auto tokenizer = Tokenizer::load(model);
    ChainRunner run(model, GetParam().make(), {.max_rows = 64}, 2048, 16);
    int index = 0, steps = 0, near_ties = 0;
    double worst = 0.0;
    for (const auto& sequence : about->at("sequences")) {
      EXPECT_EQ(tokenizer->encode(sequence.at("text").get<std::string>()),
                sequence.at("text_tokens").get<std::vector<TokenId>>());
      const auto tokens = sequence.at("tokens").get<std::vector<TokenId>>();
      const std::string suffix = std::to_string(index++);
      const auto ids = values_of<std::int32_t>(stored, "top_ids_" + suffix);
      const auto top = values_of<float>(stored, "top_logits_" + suffix);
      const auto log_sum_exp = values_of<float>(stored, "log_sum_exp_" + suffix);
      ASSERT_EQ(log_sum_exp.size(), tokens.size());
      const auto slots = run.chain(tokens, {}, all_rows(tokens.size()));
      const double bound =
          testing::logit_tolerance(run.model->config(), run.device->compute_dtype(), rms_of(top));
      for (std::size_t t = 0; t < tokens.size(); ++t) {
        for (std::size_t i = 0; i < 32; ++i) {
          const std::int32_t id = ids[32 * t + i];
          const double error =
              std::fabs(double{run.logits[t][static_cast<std::size_t>(id)]} - top[32 * t + i]);
          worst = std::max(worst, error / bound);
          ASSERT_LE(error, bound) << "token " << t << ", logit " << id;
        }
        double mass = 0.0;
        const double largest = run.logits[t][static_cast<std::size_t>(argmax(run.logits[t]))];
        for (const float logit : run.logits[t]) mass += std::exp(logit - largest);
        ASSERT_NEAR(largest + std::log(mass), log_sum_exp[t], bound);
      }
      near_ties += follow_greedy(run, sequence, slots, run.logits.back(), bound);
      steps += static_cast<int>(sequence.at("greedy").size());
    }
    std::cout << name << ": largest error " << worst << " of the tolerance, " << near_ties << " of "
              << steps << " greedy steps too close to call\n";
  }
}

const auto name_of_backend = [](const auto& backend) { return backend.param.name; };
INSTANTIATE_TEST_SUITE_P(Devices, TinyGolden, ::testing::ValuesIn(backends), name_of_backend);
INSTANTIATE_TEST_SUITE_P(Devices, ShippedGolden,
                         ::testing::Values(backends[1], backends[2], backends[3]), name_of_backend);

}  // namespace
}  // namespace coppice
