// What machine code libcoppice_cuda.so holds, read from its file: nvcc's fat binaries, each a
// container of entries for one architecture. The list that the module gives of itself, which
// `coppice info` prints and warnings go by, must be what is there.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/cuda_module.h"

namespace coppice {
namespace {

using Names = std::set<std::string>;

std::string bytes_of_module() {
  std::ifstream in(COPPICE_CUDA_MODULE_FILE, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

template <typename T>
T read(const std::string& bytes, std::size_t at) {
  T value{};
  if (at + sizeof(T) <= bytes.size()) std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

/// The architectures of every container that holds kernels, as the module's list writes them. An
/// entry is {u16 kind (1 PTX, 2 machine code), u16, u32 header bytes, u64 payload bytes, ...}, the
/// architecture's number stands at byte 28, and bit 20 of the word at byte 40 says "a". Beside
/// machine code nvcc leaves a stub of PTX, which no list names: PTX counts where a container has no
/// machine code of its number.
std::vector<Names> containers(const std::string& bytes) {
  std::vector<Names> all;
  const std::string magic("\x50\xed\x55\xba\x01\x00\x10\x00", 8);
  for (std::size_t at = bytes.find(magic); at != std::string::npos;
       at = bytes.find(magic, at + 8)) {
    const std::size_t end = at + 16 + read<std::uint64_t>(bytes, at + 8);
    Names machine, ptx;
    for (std::size_t entry = at + 16; entry + 48 <= end && end <= bytes.size();) {
      const auto header = read<std::uint32_t>(bytes, entry + 4);
      if (header < 48) break;
      const bool accelerated = (read<std::uint64_t>(bytes, entry + 40) >> 20 & 1) != 0;
      const std::string name =
          std::to_string(read<std::uint32_t>(bytes, entry + 28)) + (accelerated ? "a" : "");
      (read<std::uint16_t>(bytes, entry) == 2 ? machine : ptx).insert(name);
      entry += header + read<std::uint64_t>(bytes, entry + 8);
    }
    if (!machine.empty() || !ptx.empty()) all.push_back(machine);
  }
  return all;
}

Names machine_code_listed() {
  Names names;
  std::istringstream words(COPPICE_CUDA_ARCHITECTURES);
  for (std::string word; words >> word;) {
    if (word.find("-ptx") == std::string::npos) names.insert(word);
  }
  return names;
}

TEST(ModuleCode, ListsWhatItWasCompiledFor) {
  EXPECT_STREQ(open_cuda_module(COPPICE_CUDA_MODULE_FILE).architectures,
               COPPICE_CUDA_ARCHITECTURES);
}

TEST(ModuleCode, EveryKernelIsThereForEveryArchitectureListed) {
  const std::vector<Names> found = containers(bytes_of_module());
  EXPECT_GE(found.size(), std::size_t{COPPICE_LEAST_CUDA_SOURCES});  // one each
  for (const Names& names : found) EXPECT_EQ(names, machine_code_listed());
}

TEST(ModuleCode, HopperIsNeverCompiledForWithoutItsOwnInstructions) {
  for (const Names& names : containers(bytes_of_module())) EXPECT_EQ(names.count("90"), 0u);
}

}  // namespace
}  // namespace coppice
