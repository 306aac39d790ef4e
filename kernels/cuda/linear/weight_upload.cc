#include "kernels/cuda/linear/weight_upload.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/cuda/convert.h"
#include "kernels/cuda/error.h"

namespace coppice::cuda {
namespace {

/// A multiple of every element size. Large against the few microseconds that a copy takes to
/// start, small enough for many chunks to be in flight.
constexpr std::size_t chunk_bytes = std::size_t{4} << 20;
constexpr std::size_t chunks_per_thread = 2;
/// One core moves about 5 to 10 GB/s out of cached files, the widest bus takes some 50; but weights
/// that are quantised or packed on the way take a core several nanoseconds each.
constexpr unsigned most_threads = 16;
/// A multiple of every element size. What a thread takes of small matrices, so that all have work.
constexpr std::size_t least_bytes = std::size_t{512} << 10;

/// A chunk of pinned memory and the end of the last copy out of it.
class PinnedChunk {
 public:
  PinnedChunk() = default;
  PinnedChunk(const PinnedChunk&) = delete;
  PinnedChunk& operator=(const PinnedChunk&) = delete;
  ~PinnedChunk() {
    if (copied_ != nullptr) (void)cudaEventDestroy(copied_);
    if (memory_ != nullptr) (void)cudaFreeHost(memory_);
  }

  /// Waits until the memory can be written to.
  void* acquire() {
    if (memory_ == nullptr) {
      check(cudaHostAlloc(&memory_, chunk_bytes, cudaHostAllocDefault),
            "allocation of pinned memory for uploads");
    }
    if (copied_ == nullptr) {
      // Blocking: a spinning thread would take a core from one that copies.
      check(cudaEventCreateWithFlags(&copied_, cudaEventDisableTiming | cudaEventBlockingSync),
            "creation of an upload's event");
    }
    check(cudaEventSynchronize(copied_), "wait for an upload");
    return memory_;
  }
  void copy_to(void* device, std::size_t bytes, cudaStream_t stream) {
    check(cudaMemcpyAsync(device, memory_, bytes, cudaMemcpyHostToDevice, stream), "upload");
    check(cudaEventRecord(copied_, stream), "record of an upload's event");
  }

 private:
  void* memory_ = nullptr;
  cudaEvent_t copied_ = nullptr;
};

/// One call's bytes, of which threads claim chunks.
struct Job {
  const HostBytes* host = nullptr;
  char* device = nullptr;
  std::size_t bytes = 0;
  DType dtype = DType::bf16;        ///< of the host's values; bf16: bytes go as they are
  std::size_t claim = chunk_bytes;  ///< at a time
  std::atomic<std::size_t> claimed{0};
};

}  // namespace

struct WeightUpload::Impl {
  Impl(Allocate allocator, cudaStream_t on, bool copying)
      : allocate(std::move(allocator)), stream(on), copies(copying) {
    if (!copies) return;
    check(cudaGetDevice(&device), "query of the current device");
    const unsigned threads = std::clamp(std::thread::hardware_concurrency(), 1u, most_threads);
    chunks = std::vector<PinnedChunk>(threads * chunks_per_thread);
    helpers.reserve(threads - 1);
    for (unsigned worker = 1; worker < threads; ++worker) {
      try {
        helpers.emplace_back([this, worker] { serve(worker); });
      } catch (const std::system_error&) {
        break;  // fewer will do
      }
    }
  }

  ~Impl() {
    {
      const std::lock_guard lock(mutex);
      stop = true;
    }
    wake.notify_all();
    for (std::thread& helper : helpers) helper.join();
    // Pinned and staging memory must outlive the copies. Whoever uses the stream next hears of
    // its errors.
    (void)cudaStreamSynchronize(stream);
  }

  void run(Job& job) {
    if (!copies) return;
    if (job.bytes <= least_bytes || helpers.empty()) {
      copy_chunks(job, 0);
      return;
    }
    const std::size_t threads = helpers.size() + 1;
    job.claim =
        std::clamp(job.bytes / threads / least_bytes * least_bytes, least_bytes, chunk_bytes);
    {
      const std::lock_guard lock(mutex);
      current = &job;
      failure = nullptr;
      busy = helpers.size();
      ++jobs;
    }
    wake.notify_all();
    take_part(job, 0);
    std::unique_lock lock(mutex);
    done.wait(lock, [this] { return busy == 0; });
    current = nullptr;
    if (failure != nullptr) std::rethrow_exception(std::exchange(failure, nullptr));
  }

  void serve(std::size_t worker) {
    std::uint64_t seen = 0;
    while (true) {
      Job* job = nullptr;
      {
        std::unique_lock lock(mutex);
        wake.wait(lock, [&] { return stop || jobs != seen; });
        if (stop) return;
        seen = jobs;
        job = current;
      }
      take_part(*job, worker);
      const std::lock_guard lock(mutex);
      if (--busy == 0) done.notify_one();
    }
  }

  /// The first error is kept for the caller; everybody stops at it.
  void take_part(Job& job, std::size_t worker) {
    try {
      if (worker > 0) check(cudaSetDevice(device), "choice of the device");
      copy_chunks(job, worker);
    } catch (...) {
      job.claimed.store(job.bytes);
      const std::lock_guard lock(mutex);
      if (failure == nullptr) failure = std::current_exception();
    }
  }

  void copy_chunks(Job& job, std::size_t worker) {
    for (std::size_t turn = 0;; turn = (turn + 1) % chunks_per_thread) {
      const std::size_t begin = job.claimed.fetch_add(job.claim);
      if (begin >= job.bytes) return;
      const std::size_t bytes = std::min(job.claim, job.bytes - begin);
      PinnedChunk& chunk = chunks[worker * chunks_per_thread + turn];
      job.host->read(begin, {static_cast<std::byte*>(chunk.acquire()), bytes});
      queue(job, chunk, begin, bytes);
    }
  }

  void queue(const Job& job, PinnedChunk& chunk, std::size_t begin, std::size_t bytes) {
    if (job.dtype == DType::bf16) {
      chunk.copy_to(job.device + begin, bytes, stream);
      return;
    }
    // All chunks are converted from the same staging memory, so a chunk's copy and conversion
    // must follow each other on the stream.
    const std::size_t first = begin / size_of(job.dtype);
    const std::size_t count = bytes / size_of(job.dtype);
    const std::lock_guard lock(staging_mutex);
    chunk.copy_to(staging.data(), bytes, stream);
    convert_to_bf16(staging.data(), job.dtype, static_cast<std::int64_t>(count),
                    job.device + first * size_of(DType::bf16), stream);
  }

  const Allocate allocate;
  const cudaStream_t stream;
  const bool copies;
  int device = 0;
  DeviceBuffer staging;             ///< [chunk_bytes]
  DeviceBuffer found;               ///< one std::int32_t
  std::vector<PinnedChunk> chunks;  ///< chunks_per_thread for each thread, the caller's first
  std::mutex staging_mutex;

  std::mutex mutex;  ///< guards what follows
  std::condition_variable wake, done;
  Job* current = nullptr;
  std::uint64_t jobs = 0;  ///< so far
  std::size_t busy = 0;    ///< helpers that have not finished the current job
  bool stop = false;
  std::exception_ptr failure;
  std::vector<std::thread> helpers;
};

WeightUpload::WeightUpload(Allocate allocate, cudaStream_t stream, bool copies)
    : impl_(std::make_unique<Impl>(std::move(allocate), stream, copies)) {}

WeightUpload::~WeightUpload() = default;

cudaStream_t WeightUpload::stream() const { return impl_->stream; }

void WeightUpload::upload(void* device, const HostBytes& host, std::size_t bytes) {
  Job job;
  job.host = &host;
  job.device = static_cast<char*>(device);
  job.bytes = bytes;
  impl_->run(job);
}

void WeightUpload::upload_bf16(void* device, const HostBytes& host, DType dtype,
                               std::int64_t count) {
  if (dtype != DType::bf16 && impl_->staging.bytes() == 0) {
    impl_->staging = impl_->allocate(chunk_bytes, "weight conversion");
  }
  Job job;
  job.host = &host;
  job.device = static_cast<char*>(device);
  job.bytes = static_cast<std::size_t>(count) * size_of(dtype);
  job.dtype = dtype;
  impl_->run(job);
}

bool WeightUpload::has_non_finite(const void* device, std::int64_t count) {
  if (impl_->found.bytes() == 0) {
    impl_->found = impl_->allocate(sizeof(std::int32_t), "search for NaN weights");
  }
  if (!impl_->copies) return false;
  auto* found = impl_->found.as<std::int32_t>();
  const cudaStream_t on = impl_->stream;
  std::int32_t answer = 0;
  check(cudaMemsetAsync(found, 0, sizeof(answer), on), "search for NaN weights");
  find_non_finite(device, count, found, on);
  check(cudaMemcpyAsync(&answer, found, sizeof(answer), cudaMemcpyDeviceToHost, on),
        "search for NaN weights");
  check(cudaStreamSynchronize(on), "upload of weights");
  return answer != 0;
}

}  // namespace coppice::cuda
