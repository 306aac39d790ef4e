#include "models/gguf/gguf_file.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <mutex>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "models/gguf/ggml_types.h"
#include "models/gguf/gguf_header.h"

namespace coppice {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::int64_t most_parts = 99999;

[[noreturn]] void refuse_part(const std::string& name, const std::string& what) {
  throw_failure(cat(name, ": ", what, "; fetch the file again"));
}

[[noreturn]] void refuse_change(const GgufFile::Part& part, const char* what) {
  throw_failure(cat(part.name, ": ", what, " while it was read; start again when it is whole"));
}

}  // namespace

std::uint64_t GgufTensor::elements() const {
  return std::accumulate(shape.begin(), shape.end(), std::uint64_t{1}, std::multiplies<>());
}

GgufFile::GgufFile(const fs::path& path) : metadata_(open_part(path)) { open_rest(path); }

JsonObject GgufFile::open_part(const fs::path& path) {
  Part part{path.string(), open_to_read(path, ""), {}};
  part.stamp = stamp_of(part.file, part.name);
  parts_.push_back(std::move(part));
  return read_gguf_header(parts_.back(), parts_.size() - 1, tensors_);
}

void GgufFile::open_rest(const fs::path& path) {
  const auto number = [](const Fields& of, const char* key) {
    return of.integer(key, 0, most_parts, 0);
  };
  const std::int64_t count = number(fields(), "split.count");
  if (count < 2) return;
  const auto name_of = [&](std::int64_t index) {
    char text[32];
    std::snprintf(text, sizeof text, "-%05d-of-%05d.gguf", static_cast<int>(index + 1),
                  static_cast<int>(count));
    return std::string(text);
  };
  const std::int64_t index = number(fields(), "split.no");
  const std::string own = path.string(), first = name_of(0);
  if (index != 0 || !own.ends_with(first)) {
    throw_failure(
        cat(own, ": part ", index + 1, " of ", count, "; name the first one, NAME", first));
  }
  for (std::int64_t i = 1; i < count; ++i) {
    const fs::path next = own.substr(0, own.size() - first.size()) + name_of(i);
    if (!is_there(next)) {
      throw_failure(cat(next.string(), ": this part of ", count, " is missing; fetch it"));
    }
    const JsonObject metadata = open_part(next);
    const Fields said(*metadata, next.string());
    if (number(said, "split.no") != i || number(said, "split.count") != count) {
      refuse_part(next.string(), cat("calls itself part ", number(said, "split.no") + 1, " of ",
                                     number(said, "split.count")));
    }
  }
  const auto tensors = static_cast<std::int64_t>(tensors_.size());
  if (const auto said = fields().integer("split.tensors.count", 0, INT32_MAX, tensors);
      said != tensors) {
    refuse_part(own, cat("its ", count, " parts hold ", tensors,
                         " tensors, but split.tensors.count is ", said));
  }
}

const Json& GgufFile::list(const char* key, ListOf kind) const {
  const Fields all = fields();
  const Json* const values = all.find(key);
  if (values == nullptr) all.missing(key);
  const auto fits = [&](const Json& one) {
    return kind == ListOf::texts      ? one.is_string()
           : kind == ListOf::integers ? one.is_number_integer()
                                      : one.is_number_float();
  };
  if (!values->is_array() || !std::all_of(values->begin(), values->end(), fits)) {
    all.refuse(key, cat("a list of ", kind == ListOf::texts      ? "texts"
                                      : kind == ListOf::integers ? "integers"
                                                                 : "numbers"));
  }
  return *values;
}

const GgufTensor* GgufFile::find(const std::string& tensor) const {
  const auto found = tensors_.find(tensor);
  return found == tensors_.end() ? nullptr : &found->second;
}

WeightFormat GgufFile::format_of(const std::string& tensor) const {
  const GgufTensor& stored = tensors_.at(tensor);
  const GgmlType* const type = ggml_type(stored.type);
  if (type != nullptr && type->format) return *type->format;
  throw_failure(cat(parts_[stored.file].name, ": tensor ", tensor, " is of the type ",
                    type != nullptr ? std::string(type->name) : cat("number ", stored.type),
                    ", which coppice does not read; fetch the model in another one (Q4_K_M, "
                    "Q8_0, ...)"));
}

void GgufFile::read(const GgufTensor& tensor, std::uint64_t offset, std::span<std::byte> to) const {
  const Part& part = parts_[tensor.file];
  if (offset > tensor.bytes || to.size() > tensor.bytes - offset) {
    throw_failure(cat(part.name, ": bytes ", offset, " to ", offset + to.size(), " of a tensor of ",
                      tensor.bytes, " were asked for"));
  }
  fill_from(part.file, part.name, tensor.begin + offset, to);
}

Json GgufFile::left_out_list(const std::string& key) const {
  return read_gguf_list(parts_.front(), metadata().at(key).get_binary().subtype(), key);
}

void GgufFile::require_unchanged() const {
  for (const Part& part : parts_) {
    if (stamp_of(part.file, part.name) != part.stamp) refuse_change(part, "was written to");
  }
}

bool is_gguf(const fs::path& path) {
  std::error_code status;
  if (!fs::is_regular_file(path, status)) return false;
  if (path.extension() == ".gguf") return true;
  std::string head(gguf_magic.size(), '\0');
  if (fs::file_size(path, status) < head.size() || status) return false;
  fill_from(open_to_read(path, ""), path.string(), 0, std::as_writable_bytes(std::span(head)));
  return head == gguf_magic;
}

std::shared_ptr<const GgufFile> open_gguf(const fs::path& path) {
  static std::mutex mutex;
  static std::map<fs::path, std::weak_ptr<const GgufFile>> opened;
  const std::lock_guard lock(mutex);
  std::erase_if(opened, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<const GgufFile>& known = opened[path];
  if (auto file = known.lock()) {
    for (const GgufFile::Part& part : file->parts()) {
      if (stamp_of(fs::path(part.name)) != part.stamp) {
        refuse_change(part, "was replaced or written to");
      }
    }
    return file;
  }
  auto file = std::make_shared<const GgufFile>(path);
  known = file;
  return file;
}

std::shared_ptr<const GgufFile> held_gguf(const fs::path& path) {
  return is_gguf(path) ? open_gguf(path) : nullptr;
}

}  // namespace coppice
