// Layers that visit the device: the same bits as layers that stay, whatever the ring.
#include "kernels/cpu/weight_stream.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <utility>

#include "base/error.h"
#include "kernels/cpu/file_weight_stream.h"
#include "models/layer_sums.h"
#include "models/weights.h"
#include "reference/backend.h"
#include "reference/chain_runner.h"
#include "reference/random_tokens.h"
#include "reference/tiny_model.h"

namespace coppice::weight_stream_test {

using testing::Backend;
using testing::ChainRunner;
using testing::TemporaryFolder;
using testing::TinyModel;

// --- the order of copies ------------------------------------------------------------------------

class FakeWeights final : public LinearWeights {
 public:
  explicit FakeWeights(std::size_t bytes) : bytes_(bytes) {
    buffer = DeviceBuffer(
        this, bytes, [](void*, void*) {}, nullptr);
  }
  std::int64_t in_features() const override { return 1; }
  std::int64_t out_features() const override { return 1; }
  std::size_t bytes() const override { return bytes_; }
  std::vector<DeviceBuffer*> memory() override { return {&buffer}; }

  DeviceBuffer buffer;

 private:
  std::size_t bytes_;
};

/// Writes down what a device would be asked for.
class LoggedStream final : public RingStream {
 public:
  using RingStream::RingStream;

  std::string taken_log() { return std::exchange(log_, ""); }
  std::int64_t copies_until_failure = -1;

 protected:
  void take_block(std::size_t bytes) override { note("block", static_cast<std::int64_t>(bytes)); }
  void store(std::int32_t visit, std::size_t, const DeviceBuffer&) override {
    note("store", visit);
  }
  DeviceBuffer take_places(std::int32_t places, std::size_t bytes_each) override {
    note("places", places);
    memory_.resize(static_cast<std::size_t>(places) * bytes_each);
    return {memory_.data(), memory_.size(), [](void*, void*) {}, nullptr};
  }
  void copy(std::int32_t visit, std::int32_t place, void*) override {
    if (copies_until_failure == 0) throw_failure("planted");
    --copies_until_failure;
    log_ += cat("copy ", visit, " to ", place, "; ");
  }
  void wait_for(std::int32_t place) override { note("wait", place); }
  void free_place(std::int32_t place, void*) override { note("free", place); }

 private:
  void note(const char* what, std::int64_t number) { log_ += cat(what, " ", number, "; "); }
  std::string log_;
  std::vector<std::byte> memory_;
};

class Order : public ::testing::Test {
 protected:
  LoggedStream& stream(std::int32_t visits, std::int32_t places) {
    stream_ = std::make_unique<LoggedStream>(places);
    for (std::int32_t i = 0; i < visits; ++i) {
      weights_.push_back(std::make_unique<FakeWeights>(100 + 200 * (i % 2)));
      LinearWeights* const one = weights_.back().get();
      stream_->add({&one, 1});
    }
    stream_->begin();
    return *stream_;
  }
  std::vector<std::unique_ptr<FakeWeights>> weights_;
  std::unique_ptr<LoggedStream> stream_;
};

void visit_once(WeightStream& stream, std::int32_t visit) {
  stream.enter(visit);
  stream.leave(visit);
}

TEST_F(Order, ARingRunsOnFromPassToPass) {
  LoggedStream& ring = stream(3, 2);
  EXPECT_EQ(ring.taken_log(),
            "block 256; store 0; block 512; store 1; block 256; store 2; places 2; "
            "copy 0 to 0; copy 1 to 1; ");
  for (const std::int32_t visit : {0, 1, 2, 0}) visit_once(ring, visit);
  EXPECT_EQ(ring.taken_log(),
            "wait 0; free 0; copy 2 to 0; wait 1; free 1; copy 0 to 1; "
            "wait 0; free 0; copy 1 to 0; wait 1; free 1; copy 2 to 1; ");
}

TEST_F(Order, WeightsPointIntoTheirPlace) {
  LoggedStream& ring = stream(3, 2);
  EXPECT_EQ(weights_[0]->buffer.data(), nullptr);
  EXPECT_EQ(weights_[1]->buffer.bytes(), 300u);
  ring.enter(0);
  const void* const first = weights_[0]->buffer.data();
  ring.leave(0);
  ring.enter(1);
  EXPECT_EQ(static_cast<const std::byte*>(weights_[1]->buffer.data()) - 512, first);
  ring.leave(1);
  ring.enter(2);
  EXPECT_EQ(weights_[2]->buffer.data(), first);
}

TEST_F(Order, NoMorePlacesThanVisits) {
  EXPECT_NE(stream(1, 3).taken_log().find("places 1; copy 0 to 0; "), std::string::npos);
}

TEST_F(Order, ACopyThatFailedIsTriedAgain) {
  LoggedStream& ring = stream(3, 2);
  ring.enter(0);
  ring.taken_log();
  ring.copies_until_failure = 0;
  EXPECT_THROW(ring.leave(0), Error);
  EXPECT_THROW(ring.enter(1),
               Error);  // which is there, but the copy behind it is still to be begun
  ring.copies_until_failure = -1;
  ring.enter(1);
  EXPECT_EQ(ring.taken_log(), "free 0; copy 2 to 0; wait 1; ");
}

TEST_F(Order, APassThatFailedIsPassedOver) {
  LoggedStream& ring = stream(3, 2);
  ring.enter(0);
  ring.taken_log();
  ring.enter(0);  // of the next pass
  EXPECT_EQ(ring.taken_log(),
            "free 0; copy 2 to 0; free 1; copy 0 to 1; free 0; copy 1 to 0; wait 1; ");
}

TEST_F(Order, WhatIsOutOfOrderIsRefused) {
  LoggedStream& ring = stream(3, 2);
  EXPECT_THROW(ring.leave(0), Error);
  EXPECT_THROW(ring.enter(3), Error);
  EXPECT_THROW(ring.enter(-1), Error);
  ring.enter(0);
  EXPECT_THROW(ring.leave(1), Error);
  LinearWeights* const more = weights_.front().get();
  EXPECT_THROW(ring.add({&more, 1}), Error);
  EXPECT_THROW(LoggedStream(0), Error);
}

// --- layers in a file ---------------------------------------------------------------------------

class BytesWeights final : public LinearWeights {
 public:
  BytesWeights(std::size_t bytes, std::byte value) : data(bytes, value) {
    buffer = DeviceBuffer(
        data.data(), bytes, [](void*, void*) {}, nullptr);
  }
  std::int64_t in_features() const override { return 1; }
  std::int64_t out_features() const override { return 1; }
  std::size_t bytes() const override { return data.size(); }
  std::vector<DeviceBuffer*> memory() override { return {&buffer}; }

  std::vector<std::byte> data;
  DeviceBuffer buffer;
};

/// Writes down what it asks of the disk, in pages.
class LoggedFile final : public cpu::FileWeightStream {
 public:
  using FileWeightStream::FileWeightStream;
  std::string taken_log() { return std::exchange(log_, ""); }
  bool fails = false;

 protected:
  void expect(std::uint64_t offset, std::uint64_t bytes) override {
    log_ += cat("expect ", offset / 4096, "; ");
    FileWeightStream::expect(offset, bytes);
  }
  void read(std::uint64_t offset, std::span<std::byte> to) override {
    if (std::exchange(fails, false)) throw_failure("planted");
    log_ += cat("read ", offset / 4096, "; ");
    FileWeightStream::read(offset, to);
  }

 private:
  std::string log_;
};

class FileStream : public ::testing::Test {
 protected:
  FileStream() : stream(2, folder_.path() / "made") {
    for (std::size_t i = 0; i < 3; ++i) {
      weights.push_back(std::make_unique<BytesWeights>(5000, static_cast<std::byte>(i + 1)));
      LinearWeights* const one = weights.back().get();
      stream.add({&one, 1});
    }
    stream.begin();
  }
  TemporaryFolder folder_;
  LoggedFile stream;
  std::vector<std::unique_ptr<BytesWeights>> weights;
};

TEST_F(FileStream, TheDiskIsToldOfEveryLayerTwoAhead) {
  EXPECT_EQ(stream.taken_log(), "expect 0; expect 2; ");
  for (const std::int32_t visit : {0, 1, 2, 0}) {
    stream.enter(visit);
    const BytesWeights& one = *weights[static_cast<std::size_t>(visit)];
    EXPECT_EQ(std::memcmp(one.buffer.data(), one.data.data(), one.data.size()), 0) << visit;
    stream.leave(visit);
  }
  EXPECT_EQ(stream.taken_log(),
            "read 0; expect 4; read 2; expect 0; read 4; expect 2; read 0; expect 4; ");
}

TEST_F(FileStream, AReadThatFailedIsTriedAgain) {
  stream.fails = true;
  EXPECT_THROW(stream.enter(0), Error);
  stream.enter(0);
  EXPECT_EQ(static_cast<const std::byte*>(weights[0]->buffer.data())[4999], std::byte{1});
}

TEST_F(FileStream, TheFileHasNoName) {
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path() / "made"));
}

TEST(FileStreams, AFolderThatCannotBeWrittenIsNamed) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "file";
  write_file(file, "text");
  try {
    cpu::FileWeightStream(2, file / "below");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::failure);
    EXPECT_NE(std::string(error.what()).find(file.string()), std::string::npos) << error.what();
  }
}

// --- which layers -------------------------------------------------------------------------------

std::string spread(std::int32_t layers, std::int32_t resident) {
  std::string text;
  for (std::int32_t i = 0; i < layers; ++i) text += is_streamed(i, layers, resident) ? 's' : '-';
  return text;
}

TEST(StreamedLayers, AreSpreadEvenly) {
  EXPECT_EQ(spread(6, 0), "ssssss");
  EXPECT_EQ(spread(6, 3), "-s-s-s");
  EXPECT_EQ(spread(6, 4), "--s--s");
  EXPECT_EQ(spread(6, 2), "-ss-ss");
  EXPECT_EQ(spread(6, 6), "------");
  EXPECT_EQ(spread(6, 99), "------");
  EXPECT_EQ(spread(6, -1), "------");
}

// --- whole passes -------------------------------------------------------------------------------

class StreamedPasses : public ::testing::TestWithParam<Backend> {
 protected:
  void SetUp() override {
    if (const auto why = testing::lacking(GetParam()); !why.empty()) GTEST_SKIP() << why;
  }
};

INSTANTIATE_TEST_SUITE_P(
    Devices, StreamedPasses,
    ::testing::Values(Backend{"f32", [] { return testing::cpu(DType::f32); }},
                      Backend{"bf16", [] { return testing::cpu(DType::bf16); }}, testing::cuda),
    [](const auto& backend) { return backend.param.name; });

using Logits = std::vector<std::vector<std::vector<float>>>;

/// Of a prompt, of one without logits, of single tokens: several of each, so that every pass finds
/// the ring at another place.
Logits logits_of(ChainRunner& run) {
  Logits all;
  std::vector<KvSlot> slots;
  const auto pass = [&](std::size_t rows, std::vector<std::int32_t> wanted) {
    const auto tokens = testing::random_tokens(rows, 90, static_cast<std::uint32_t>(slots.size()));
    const std::vector<KvSlot> taken = run.chain(tokens, slots, wanted);
    slots.insert(slots.end(), taken.begin(), taken.end());
    all.push_back(run.logits);
  };
  for (int i = 0; i < 3; ++i) {
    pass(12, {});
    pass(5, {0, 4});
    pass(1, {0});
    pass(1, {0});
  }
  return all;
}

Logits streamed_logits(const std::filesystem::path& dir, std::unique_ptr<Device> device,
                       ModelOptions options) {
  ChainRunner run(dir, std::move(device), options);
  return logits_of(run);
}

std::map<std::string, TinyModel> streamed_models() {
  std::map<std::string, TinyModel> all = testing::tiny_families();
  all["llama"].layers = 5;
  all["biases"].attention_bias = true;
  all["biases"].mlp_bias = true;
  all["tied"].tie_word_embeddings = true;
  return all;
}

TEST_P(StreamedPasses, HaveTheBitsOfResidentLayers) {
  for (const auto& [name, spec] : streamed_models()) {
    SCOPED_TRACE(name);
    const TemporaryFolder folder;
    testing::write_tiny_model(folder.path(), spec);
    const Logits resident = streamed_logits(folder.path(), GetParam().make(), {.max_rows = 24});
    for (const std::int32_t places : {1, 2, 3, 9}) {
      for (const std::int32_t stay : {0, 1, spec.layers - 1}) {
        ModelOptions options{.max_rows = 24};
        options.resident_layers = stay;
        options.stream_places = places;
        EXPECT_EQ(streamed_logits(folder.path(), GetParam().make(), options), resident)
            << places << " places, " << stay << " resident layers";
      }
    }
  }
}

TEST_P(StreamedPasses, OfLayersInAFileToo) {
  if (std::string(GetParam().name) == "cuda") GTEST_SKIP() << "its layers lie in host memory";
  for (const auto& [name, spec] : streamed_models()) {
    SCOPED_TRACE(name);
    const TemporaryFolder folder;
    testing::write_tiny_model(folder.path(), spec);
    const Logits resident = streamed_logits(folder.path(), GetParam().make(), {.max_rows = 24});
    ModelOptions options{.max_rows = 24};
    options.stream_folder = folder.path();
    for (const std::int32_t stay : {0, 1}) {
      options.resident_layers = stay;
      EXPECT_EQ(streamed_logits(folder.path(), GetParam().make(), options), resident) << stay;
    }
  }
}

TEST_P(StreamedPasses, OfQuantisedLayersToo) {
  TinyModel spec;
  spec.layers = 5;
  spec.hidden_size = spec.intermediate_size = 256;
  const TemporaryFolder folder;
  testing::write_tiny_model(folder.path(), spec);
  for (const WeightFormat format : {WeightFormat::q4_k, WeightFormat::q8_0, WeightFormat::fp8}) {
    ModelOptions options{.max_rows = 24};
    options.rounding = format;
    const Logits resident = streamed_logits(folder.path(), GetParam().make(), options);
    options.resident_layers = 1;
    EXPECT_EQ(streamed_logits(folder.path(), GetParam().make(), options), resident)
        << name_of(format);
  }
}

TEST_P(StreamedPasses, SayWhatTheyCopy) {
  TinyModel spec;
  spec.layers = 5;
  const TemporaryFolder folder;
  testing::write_tiny_model(folder.path(), spec);
  ModelOptions options{.max_rows = 24};
  const auto device = GetParam().make();
  const auto all = Model::load(folder.path(), *device, options);
  EXPECT_EQ(all->streamed_bytes(), 0u);
  ASSERT_EQ(all->layer_blocks().size(), 5u);
  options.resident_layers = 2;
  const auto some = Model::load(folder.path(), *device, options);
  EXPECT_EQ(some->streamed_bytes(), 3 * all->layer_blocks().front());
  EXPECT_EQ(some->weight_bytes_read(), all->weight_bytes_read());
}

// --- planted faults -----------------------------------------------------------------------------

/// A CPU device whose streams pass through `wrap`.
class WrappedDevice final : public Device {
 public:
  using Wrap = std::function<std::unique_ptr<WeightStream>(std::unique_ptr<WeightStream>)>;
  explicit WrappedDevice(Wrap wrap) : device_(testing::cpu(DType::f32)), wrap_(std::move(wrap)) {}

  std::unique_ptr<WeightStream> make_weight_stream(std::int32_t places) override {
    return wrap_(device_->make_weight_stream(places));
  }

  std::string name() const override { return device_->name(); }
  DType compute_dtype() const override { return device_->compute_dtype(); }
  int threads() const override { return device_->threads(); }
  DeviceBuffer allocate(std::size_t bytes, const char* purpose) override {
    return device_->allocate(bytes, purpose);
  }
  void upload(void* device, const HostBytes& host, std::size_t bytes) override {
    device_->upload(device, host, bytes);
  }
  void download(void* host, const void* device, std::size_t bytes) override {
    device_->download(host, device, bytes);
  }
  void synchronize() override {}
  bool embeds(WeightFormat format) const override { return device_->embeds(format); }
  std::unique_ptr<LinearWeights> pack_linear(std::span<const LinearPart> parts, std::int64_t in,
                                             std::span<const float> bias,
                                             std::int32_t max_rows) override {
    return device_->pack_linear(parts, in, bias, max_rows);
  }
  std::unique_ptr<Pass> make_pass(const PassLimits& limits) override {
    return device_->make_pass(limits);
  }
  void embed(const Pass& pass, const EmbeddingTable& table, std::int64_t hidden, float scale,
             float* out) override {
    device_->embed(pass, table, hidden, scale, out);
  }
  void rms_norm(const float* x, const float* weight, float epsilon, std::int32_t rows,
                std::int64_t hidden, void* out) override {
    device_->rms_norm(x, weight, epsilon, rows, hidden, out);
  }
  void add_rms_norm(const float* x, const float* weight, float epsilon, std::int32_t rows,
                    std::int64_t hidden, float* into) override {
    device_->add_rms_norm(x, weight, epsilon, rows, hidden, into);
  }
  void linear(const LinearWeights& weights, const void* x, std::int32_t rows, float* out,
              bool accumulate) override {
    device_->linear(weights, x, rows, out, accumulate);
  }
  std::int32_t padded_rows(std::int32_t rows) const override { return device_->padded_rows(rows); }
  void rope_write_kv(const Pass& pass, float* qkv, const QkvOutput& to) override {
    device_->rope_write_kv(pass, qkv, to);
  }
  void glu(Activation activation, const float* gate_up, std::int32_t rows, std::int64_t n,
           void* out) override {
    device_->glu(activation, gate_up, rows, n, out);
  }
  void tree_attention(const Pass& pass, const float* q, std::int64_t stride, std::int32_t heads,
                      const AttentionRule& rule, const KvLayout& layout, const void* keys,
                      const void* values, std::int32_t layer, void* out) override {
    device_->tree_attention(pass, q, stride, heads, rule, layout, keys, values, layer, out);
  }
  void gather_logit_rows(const Pass& pass, const float* x, std::int64_t width,
                         float* out) override {
    device_->gather_logit_rows(pass, x, width, out);
  }
  void soft_cap(float* logits, std::int32_t rows, std::int64_t width, float cap) override {
    device_->soft_cap(logits, rows, width, cap);
  }

 private:
  std::unique_ptr<Device> device_;
  Wrap wrap_;
};

/// Does what its stream is asked for, but at calls of one visit.
class FaultyStream final : public WeightStream {
 public:
  enum class Fault { none, leaves_early, fails };
  FaultyStream(std::unique_ptr<WeightStream> stream, Fault fault)
      : stream_(std::move(stream)), fault_(fault) {}
  void add(std::span<LinearWeights* const> weights) override { stream_->add(weights); }
  void begin() override { stream_->begin(); }
  void enter(std::int32_t visit) override {
    if (visit == faulty && fault_ == Fault::fails && !std::exchange(failed_, true)) {
      throw_failure("planted: a copy failed");
    }
    stream_->enter(visit);
    if (visit == faulty && fault_ == Fault::leaves_early) stream_->leave(visit);
  }
  void leave(std::int32_t visit) override {
    if (visit != faulty || fault_ != Fault::leaves_early) stream_->leave(visit);
  }

 private:
  static constexpr std::int32_t faulty = 2;
  std::unique_ptr<WeightStream> stream_;
  Fault fault_;
  bool failed_ = false;
};

/// Leaves one copy out.
class MissingCopy final : public cpu::CpuWeightStream {
 public:
  using CpuWeightStream::CpuWeightStream;

 protected:
  void copy(std::int32_t visit, std::int32_t place, void* to) override {
    if (++copies_ != 9) CpuWeightStream::copy(visit, place, to);
  }

 private:
  int copies_ = 0;
};

class PlantedFaults : public ::testing::Test {
 protected:
  PlantedFaults() {
    TinyModel spec;
    spec.layers = 5;
    testing::write_tiny_model(folder_.path(), spec);
    options_.max_rows = 24;
    options_.resident_layers = 0;
  }
  std::unique_ptr<Device> device(FaultyStream::Fault fault) {
    return std::make_unique<WrappedDevice>([fault](std::unique_ptr<WeightStream> stream) {
      return std::make_unique<FaultyStream>(std::move(stream), fault);
    });
  }
  TemporaryFolder folder_;
  ModelOptions options_;
};

bool has_nan(const Logits& logits) {
  for (const auto& pass : logits) {
    for (const auto& row : pass) {
      for (const float value : row) {
        if (std::isnan(value)) return true;
      }
    }
  }
  return false;
}

TEST_F(PlantedFaults, NoFaultNoNan) {
  EXPECT_FALSE(
      has_nan(streamed_logits(folder_.path(), device(FaultyStream::Fault::none), options_)));
}

TEST_F(PlantedFaults, ALayerThatLeavesTooEarlyIsSeen) {
  EXPECT_TRUE(has_nan(
      streamed_logits(folder_.path(), device(FaultyStream::Fault::leaves_early), options_)));
}

TEST_F(PlantedFaults, AMissingCopyIsSeen) {
  auto device = std::make_unique<WrappedDevice>(
      [](std::unique_ptr<WeightStream>) { return std::make_unique<MissingCopy>(2); });
  EXPECT_NE(streamed_logits(folder_.path(), std::move(device), options_),
            streamed_logits(folder_.path(), testing::cpu(DType::f32), options_));
}

TEST_F(PlantedFaults, AfterAFailureTheNextPassIsRight) {
  ChainRunner run(folder_.path(), device(FaultyStream::Fault::fails), options_);
  EXPECT_THROW(run.chain({3, 4, 5}, {}, {2}), Error);
  const Logits wanted = streamed_logits(folder_.path(), testing::cpu(DType::f32), {.max_rows = 24});
  EXPECT_EQ(logits_of(run), wanted);
}

}  // namespace coppice::weight_stream_test
