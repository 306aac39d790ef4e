#include "kernels/cuda/linear/code_loader.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <set>
#include <shared_mutex>
#include <thread>
#include <vector>

#include "base/start_thread.h"
#include "kernels/cuda/error.h"
#include "kernels/cuda/linear/code_loading.h"
#include "kernels/cuda/linear/library_products.h"
#include "kernels/cuda/linear/linear.h"
#include "kernels/cuda/linear/product_proposals.h"
#include "kernels/cuda/linear/streamed_linear.h"

namespace coppice::cuda {
namespace {

DeviceBuffer take_memory(std::size_t bytes, const char* purpose) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, bytes), purpose);
  return {memory, bytes, [](void* freed, void*) { (void)cudaFree(freed); }, nullptr};
}

/// What runs products on one thread: a stream, and library handles of its own.
class Runner {
 public:
  explicit Runner(ProductProposals& proposals) : products_(take_memory, timing_, proposals) {
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream");
  }
  ~Runner() {
    (void)cudaStreamSynchronize(stream_);
    (void)cudaStreamDestroy(stream_);
  }
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  void run(const ProductShape& shape) {
    const std::size_t bytes = LibraryProducts::bytes_to_load(shape);
    if (bytes > memory_.bytes()) {
      check(cudaStreamSynchronize(stream_), "loading code");
      memory_ = {};
      memory_ = take_memory(bytes, "loading code");
    }
    products_.load_code(shape, memory_.data(), stream_);
  }

 private:
  ProductTiming timing_;
  LibraryProducts products_;
  cudaStream_t stream_ = nullptr;
  DeviceBuffer memory_;
};

}  // namespace

struct CodeLoader::Impl {
  explicit Impl(ProductProposals& found) : proposals(found) {
    check(cudaGetDevice(&device), "asking for the current GPU");
    thread = start_thread<std::jthread>([this](const std::stop_token& stop) { work(stop); });
  }

  void work(const std::stop_token& stop) {
    if (cudaSetDevice(device) != cudaSuccess) return;
    std::optional<Runner> runner;  // holds memory only while there is work
    std::unique_lock lock(mutex);
    while (true) {
      if (waiting.empty()) {
        lock.unlock();
        if (runner) {
          const std::unique_lock loading(code_loading());
          runner.reset();
        }
        lock.lock();
        idle = waiting.empty();
        changed.notify_all();
        if (!changed.wait(lock, stop, [this] { return !waiting.empty(); })) break;
        idle = false;
      }
      const ProductShape shape = waiting.back();
      waiting.pop_back();
      lock.unlock();
      try {
        const std::unique_lock loading(code_loading());
        if (!runner) runner.emplace(proposals);
        runner->run(shape);
      } catch (const std::exception&) {
        (void)cudaGetLastError();  // the product's first run will say what is wrong, if it is
      }
      lock.lock();
      if (stop.stop_requested()) break;
    }
    const std::unique_lock loading(code_loading());
    runner.reset();
  }

  ProductProposals& proposals;
  int device = 0;
  std::mutex mutex;
  std::condition_variable_any changed;
  std::vector<ProductShape> waiting;  ///< by rows, the most last
  std::set<ProductShape> known;
  bool idle = false;
  std::jthread thread;  // last: ends before what it uses
};

CodeLoader::CodeLoader(ProductProposals& proposals) : impl_(std::make_unique<Impl>(proposals)) {}
CodeLoader::~CodeLoader() = default;

// The largest passes come first: prompts' do.
void CodeLoader::load(std::span<const ExpectedProduct> products, bool streams) {
  const std::lock_guard lock(impl_->mutex);
  for (const ExpectedProduct& product : products) {
    for (std::int32_t rows = padded_row_count(product.max_rows); rows > 0;
         rows = smaller_row_count(rows)) {
      if (streams && can_stream(product.in, product.out, rows)) continue;
      const ProductShape shape{product.in, product.out, rows, product.accumulate, product.bias};
      if (impl_->known.insert(shape).second) impl_->waiting.push_back(shape);
    }
  }
  std::stable_sort(impl_->waiting.begin(), impl_->waiting.end(),
                   [](const auto& a, const auto& b) { return a.rows < b.rows; });
  impl_->changed.notify_all();
}

void CodeLoader::finish() {
  std::unique_lock lock(impl_->mutex);
  impl_->changed.wait(lock, [this] { return impl_->waiting.empty() && impl_->idle; });
}

}  // namespace coppice::cuda
