// A GGUF file that another one takes the name of while it is loaded.
#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.h"
#include "engine/pair.h"
#include "models/gguf/quantise_model.h"
#include "reference/files.h"

namespace coppice::testing {
namespace {

namespace fs = std::filesystem;

class ReplacedFile : public ::testing::Test {
 protected:
  fs::path made(const std::string& which, const char* name) const {
    QuantiseRequest request;
    request.from = stories() / which;
    request.to = folder_.path() / name;
    quantise_model(request);
    return request.to;
  }
  const TemporaryFolder folder_;
};

// Weights of the one and the tokenizer of the other would not belong together.
TEST_F(ReplacedFile, IsNotReadInParts) {
  EngineOptions options;
  options.target = made("target", "m.gguf");
  options.threads = 1;
  const fs::path other = made("target", "other.gguf");
  options.progress = [&](const LoadEvent&) {
    if (fs::exists(other)) fs::rename(other, options.target);
  };
  EXPECT_NE(error_of([&] {
              Engine::load(options);
            }).find("m.gguf: was replaced or written to while it was read; start again"),
            std::string::npos);
  EXPECT_EQ(error_of([&] { Engine::load(options); }), "") << "it is whole now";
}

TEST_F(ReplacedFile, IsNotRoundedIfItIsQuantised) {
  EngineOptions options;
  options.target = made("target", "m.gguf");
  options.target_weights = WeightRounding::q4_k;
  EXPECT_NE(
      error_of([&] { Engine::load(options); }, ErrorKind::usage).find("target_weights q4_k: "),
      std::string::npos);
  options.target_weights = WeightRounding::keep;
  options.draft = options.target;
  options.draft_weights = WeightRounding::q4_k;
  EXPECT_NE(error_of([&] { Engine::load(options); }, ErrorKind::usage).find("draft_weights q4_k: "),
            std::string::npos);
}

}  // namespace
}  // namespace coppice::testing
