#include "models/checkpoint.h"

#include <system_error>

#include "base/error.h"
#include "base/files.h"
#include "base/json_file.h"

namespace coppice {
namespace {

namespace fs = std::filesystem;

// That of 405 billion weights takes a hundredth.
constexpr std::uint64_t largest_index = 64u << 20;  // a large mixture's has 20 MB

[[noreturn]] void no_weights(const fs::path& dir) {
  std::error_code status;
  for (const char* other : {"pytorch_model.bin", "pytorch_model.bin.index.json",
                            "consolidated.00.pth", "tf_model.h5"}) {
    if (fs::exists(dir / other, status)) {
      throw_failure(cat(dir.string(), ": has ", other,
                        " but no model.safetensors; save it again "
                        "with save_pretrained(safe_serialization=True)"));
    }
  }
  throw_failure(cat(dir.string(),
                    ": neither model.safetensors nor model.safetensors.index.json "
                    "is there; fetch the model's weights"));
}

/// A shard lies in the folder itself: no separators, no parents, no NUL.
bool is_plain_file_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string("/\\\0", 3)) == name.npos;
}

}  // namespace

Checkpoint::Checkpoint(const fs::path& dir) {
  const auto single = dir / "model.safetensors";
  const auto index = dir / "model.safetensors.index.json";
  if (is_there(single)) {
    files_.emplace_back(single);
    for (const auto& [tensor, stored] : files_.front().tensors()) file_of_.emplace(tensor, 0);
  } else if (is_there(index)) {
    open_shards(dir, index);
  } else {
    no_weights(dir);
  }
}

void Checkpoint::open_shards(const fs::path& dir, const fs::path& index) {
  const auto object = read_json_object(index, largest_index);
  const auto map = object->find("weight_map");
  if (map == object->end() || !map->is_object() || map->empty()) {
    throw_failure(cat(index.string(),
                      ": weight_map is missing, empty or not an object; fetch "
                      "the file again"));
  }
  std::map<std::string, std::size_t> opened;
  for (const auto& [tensor, shard] : map->items()) {
    if (!shard.is_string() || !is_plain_file_name(shard.get_ref<const std::string&>())) {
      throw_failure(cat(index.string(), ": tensor ", quote(tensor), " is said to be in ",
                        shown(shard),
                        ", which is no file name within the folder; fetch the "
                        "file again"));
    }
    const auto& name = shard.get_ref<const std::string&>();
    const auto [it, first] = opened.emplace(name, files_.size());
    if (first) {
      if (!is_there(dir / name)) {
        throw_failure(cat((dir / name).string(), ": this shard is missing; fetch it"));
      }
      files_.emplace_back(dir / name);
    }
    if (!files_[it->second].tensors().contains(tensor)) {
      throw_failure(cat(index.string(), ": tensor ", quote(tensor), " is not in ", quote(name),
                        ", where the index puts it; fetch both files again"));
    }
    file_of_.emplace(tensor, it->second);
  }
}

const StoredTensor* Checkpoint::find(const std::string& tensor) const {
  const auto it = file_of_.find(tensor);
  return it == file_of_.end() ? nullptr : &files_[it->second].tensors().at(tensor);
}

const std::string& Checkpoint::file_name(const std::string& tensor) const {
  return file_of(tensor).name();
}

void Checkpoint::read(const std::string& tensor, std::uint64_t offset,
                      std::span<std::byte> to) const {
  file_of(tensor).read(*find(tensor), offset, to);
}

std::vector<std::string> Checkpoint::names() const {
  std::vector<std::string> names;
  for (const auto& [name, file] : file_of_) names.push_back(name);
  return names;
}

std::uint64_t Checkpoint::bytes() const {
  std::uint64_t bytes = 0;
  for (const SafetensorsFile& file : files_) bytes += file.size();
  return bytes;
}

const SafetensorsFile& Checkpoint::file_of(const std::string& tensor) const {
  return files_[file_of_.at(tensor)];
}

void Checkpoint::require_unchanged() const {
  for (const SafetensorsFile& file : files_) file.require_unchanged();
}

}  // namespace coppice
