#include "kernels/cpu/file_weight_stream.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <system_error>

#include "base/error.h"
#include "base/lost_model.h"
#include "kernels/cpu/memory.h"

namespace coppice::cpu {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t page_bytes = 4096;
constexpr const char* when_full =
    "layers that memory does not hold are kept there; free some space, or have XDG_CACHE_HOME name "
    "a folder with more";

FileHandle nameless_file(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw_write_failure(folder, error.value(), when_full);
  const fs::path path = name_beside(folder / "layers");
  FileHandle file = open_file(path, O_RDWR | O_CREAT | O_EXCL, when_full);
  if (::unlink(path.c_str()) != 0) throw_write_failure(path, errno, when_full);
  return file;
}

}  // namespace

FileWeightStream::FileWeightStream(std::int32_t places, const fs::path& folder)
    : RingStream(places), folder_(folder), file_(nameless_file(folder)) {}

// The disk's room is taken at once: a full one is found before hours of writing.
void FileWeightStream::take_block(std::size_t bytes) {
  const std::uint64_t size = (bytes + page_bytes - 1) / page_bytes * page_bytes;
  const int error =
      ::posix_fallocate(file_.get(), static_cast<off_t>(end_), static_cast<off_t>(size));
  if (error != 0) throw_write_failure(folder_, error, when_full);
  begin_.push_back(end_);
  end_ += size;
}

void FileWeightStream::store(std::int32_t visit, std::size_t offset, const DeviceBuffer& from) {
  const std::uint64_t at = begin_[static_cast<std::size_t>(visit)] + offset;
  const std::string_view bytes(static_cast<const char*>(from.data()), from.bytes());
  if (::lseek(file_.get(), static_cast<off_t>(at), SEEK_SET) < 0 ||
      !write_all(file_.get(), bytes)) {
    throw_write_failure(folder_, errno, when_full);
  }
}

DeviceBuffer FileWeightStream::take_places(std::int32_t places, std::size_t bytes_each) {
  places_.resize(static_cast<std::size_t>(places));
  return allocate(static_cast<std::size_t>(places) * bytes_each, "streamed weights");
}

void FileWeightStream::copy(std::int32_t visit, std::int32_t place, void* to) {
  places_[static_cast<std::size_t>(place)] = {to, visit};
  expect(begin_[static_cast<std::size_t>(visit)], bytes_of(visit));
}

void FileWeightStream::wait_for(std::int32_t place) {
  const Place& wanted = places_[static_cast<std::size_t>(place)];
  read(begin_[static_cast<std::size_t>(wanted.visit)],
       {static_cast<std::byte*>(wanted.memory), bytes_of(wanted.visit)});
}

void FileWeightStream::free_place(std::int32_t, void*) {}

// Without it the disk only waits for reads.
void FileWeightStream::expect(std::uint64_t offset, std::uint64_t bytes) {
#ifdef POSIX_FADV_WILLNEED
  (void)::posix_fadvise(file_.get(), static_cast<off_t>(offset), static_cast<off_t>(bytes),
                        POSIX_FADV_WILLNEED);
#endif
}

void FileWeightStream::read(std::uint64_t offset, std::span<std::byte> to) {
  try {
    fill_from(file_, (folder_ / "layers").string(), offset, to);
  } catch (const Error& error) {
    throw LostModel(error.what());
  }
}

}  // namespace coppice::cpu
