// GGUF files: what is read of good ones, and the line that refuses each bad one.
#include "models/gguf/gguf_file.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "models/gguf/copied_metadata.h"
#include "models/gguf/ggml_types.h"
#include "reference/files.h"
#include "reference/gguf_file.h"
#include "reference/tiny_model.h"

namespace coppice::testing {
namespace {

namespace fs = std::filesystem;
using ListOf = GgufFile::ListOf;

class Gguf : public ::testing::Test {
 protected:
  fs::path put(const std::string& bytes, const std::string& name = "m.gguf") const {
    write_file(folder_.path() / name, bytes);
    return folder_.path() / name;
  }
  std::string refusal(const std::string& bytes, const std::string& name = "m.gguf") const {
    const fs::path path = put(bytes, name);
    return error_of([&] { GgufFile file(path); });
  }
  const TemporaryFolder folder_;
};

/// Two tensors, one of them of a type that coppice does not read.
GgufBytes good() {
  GgufBytes file;
  file.add("general.architecture", "llama").add("general.alignment", 64);
  file.alignment = 64;
  file.add("a", GgufBytes::i8, GgufBytes::number(std::int8_t{-3}));
  file.add("b", GgufBytes::u64, GgufBytes::number(std::uint64_t{1} << 63));
  file.add("c", GgufBytes::f64, GgufBytes::number(0.25)).add("d", true).add("e", "h\u00e9");
  file.add("f", std::vector<std::string>{"x", "", "yz"}).add("g", std::vector<int>{1, -2});
  file.add("h", std::vector<float>{0.5f});
  file.floats("norm", {1.0f, 2.0f, 3.0f});
  file.tensor("odd", {256, 2}, 16, std::string(132, 'q'));
  file.tensor("w", {32, 3}, 8, std::string(102, 'w'));
  return file;
}

TEST_F(Gguf, ReadsValuesAndTensors) {
  for (const std::uint32_t version : {2u, 3u}) {
    GgufBytes bytes = good();
    bytes.version = version;
    const GgufFile file(put(bytes.bytes()));
    const Fields fields = file.fields();
    EXPECT_EQ(fields.text("general.architecture", ""), "llama");
    EXPECT_EQ(fields.integer("a", -9, 9), -3);
    EXPECT_EQ(file.metadata()["b"], std::uint64_t{1} << 63);
    EXPECT_EQ(fields.positive("c"), 0.25);
    EXPECT_TRUE(fields.boolean("d", false));
    EXPECT_EQ(fields.text("e", ""), "h\u00e9");
    EXPECT_EQ(file.list("f", ListOf::texts), nlohmann::json({"x", "", "yz"}));
    EXPECT_EQ(file.list("g", ListOf::integers), nlohmann::json({1, -2}));
    EXPECT_EQ(file.list("h", ListOf::numbers), nlohmann::json({0.5}));

    ASSERT_EQ(file.tensors().size(), 3u);
    EXPECT_EQ(file.find("none"), nullptr);
    const GgufTensor& w = *file.find("w");
    EXPECT_EQ(w.shape, (std::vector<std::uint64_t>{3, 32}));
    EXPECT_EQ(w.bytes, 102u);
    EXPECT_EQ(w.begin % 64, 0u);
    EXPECT_EQ(file.format_of("w"), WeightFormat::q8_0);
    std::string read(2, ' ');
    file.read(w, 100, std::as_writable_bytes(std::span(read)));
    EXPECT_EQ(read, "ww");
    const auto beyond = [&] { file.read(w, 101, std::as_writable_bytes(std::span(read))); };
    EXPECT_NE(error_of(beyond), "");
    std::vector<float> norm(3);
    file.read(*file.find("norm"), 0, std::as_writable_bytes(std::span(norm)));
    EXPECT_EQ(norm, (std::vector<float>{1.0f, 2.0f, 3.0f}));
    const std::string type = error_of([&] { static_cast<void>(file.format_of("odd")); });
    EXPECT_NE(type.find("tensor odd is of the type IQ2_XXS"), type.npos) << type;
  }
}

TEST_F(Gguf, WrongValuesAreNamedByFileAndKey) {
  const GgufFile file(put(good().bytes()));
  const auto says = [&](const std::function<void()>& call, const std::string& words) {
    const std::string message = error_of(call);
    EXPECT_NE(message.find("m.gguf: "), message.npos) << message;
    EXPECT_NE(message.find(words), message.npos) << message;
  };
  says([&] { file.fields().integer("e", 0, 9); },
       "e is 'h\u00e9', but must be an integer from 0 to 9");
  says([&] { file.fields().integer("none", 0, 9); }, "none is missing");
  says([&] { file.list("none", ListOf::texts); }, "none is missing");
  says([&] { file.list("e", ListOf::texts); }, "e is 'h\u00e9', but must be a list of texts");
  says([&] { file.list("f", ListOf::integers); }, "but must be a list of integers");
  says([&] { file.list("g", ListOf::numbers); }, "but must be a list of numbers");
}

TEST_F(Gguf, BadFilesAreRefused) {
  struct Case {
    std::string words;
    std::function<void(GgufBytes&)> make;
  };
  const auto number = [](auto value) { return GgufBytes::number(value); };
  const std::string list_of_lists = number(std::uint32_t{9}) + number(std::uint64_t{1}) +
                                    number(std::uint32_t{4}) + number(std::uint64_t{0});
  const Case cases[] = {
      {"GGUF of version 1, but", [](GgufBytes& file) { file.version = 1; }},
      {"big-endian GGUF", [](GgufBytes& file) { file.version = 3u << 24; }},
      {"GGUF of version 4", [](GgufBytes& file) { file.version = 4; }},
      {"has 1152921504606846976 keys, more than the 65536",
       [](GgufBytes& file) { file.count = std::uint64_t{1} << 60; }},
      {"'key' has 844424930131968 bytes", [](GgufBytes& file) { file.count = 60000; }},
      {"'x' is NaN or infinity", [](GgufBytes& file) { file.add("x", std::nan("")); }},
      {"'x' is NaN or infinity",
       [&](GgufBytes& file) { file.add("x", GgufBytes::f64, number(-HUGE_VAL)); }},
      {"tensor '' has 0 extents",
       [](GgufBytes& file) { file.tensor_count = std::uint64_t{1} << 60; }},
      {"key 'e' appears twice", [](GgufBytes& file) { file.add("e", 1); }},
      {"tensor 'w' appears twice", [](GgufBytes& file) { file.tensor_at("w", {1}, 0, 0); }},
      {"'x' is of the unknown kind 13",
       [](GgufBytes& file) { file.add("x", static_cast<GgufBytes::Kind>(13), ""); }},
      {"'x' is of the unknown kind 77",
       [](GgufBytes& file) { file.add_list("x", static_cast<GgufBytes::Kind>(77), 1, " "); }},
      {"'x' is a list of lists",
       [&](GgufBytes& file) { file.add("x", GgufBytes::list, list_of_lists); }},
      {"'x' is a list of 1152921504606846976 values",
       [](GgufBytes& file) { file.add_list("x", GgufBytes::u64, std::uint64_t{1} << 60, ""); }},
      {"'x' is a list of 400 values; it is truncated or damaged",  // one more byte each than there
                                                                   // are
       [](GgufBytes& file) { file.add_list("x", GgufBytes::u64, 400, ""); }},
      {"'x' is 2, neither true nor false",
       [&](GgufBytes& file) { file.add("x", GgufBytes::boolean, "\x02"); }},
      {"'x' has 9223372036854775807 bytes",
       [&](GgufBytes& file) { file.add("x", GgufBytes::string, number(INT64_MAX)); }},
      {"'key' has 70000 bytes", [](GgufBytes& file) { file.add(std::string(70000, 'k'), 1); }},
      {"'x' is not valid UTF-8", [](GgufBytes& file) { file.add("x", "\xff"); }},
      {"'key' is not valid UTF-8", [](GgufBytes& file) { file.add("\xff", 1); }},
      {"tensor 't' has 0 extents", [](GgufBytes& file) { file.tensor_at("t", {}, 0, 0); }},
      {"tensor 't' has 5 extents",
       [](GgufBytes& file) {
         file.tensor_at("t", {1, 1, 1, 1, 1}, 0, 256);
       }},
      {"tensor 't' has an extent of 0", [](GgufBytes& file) { file.tensor_at("t", {0}, 0, 256); }},
      {"tensor 't' has a shape whose size overflows",
       [](GgufBytes& file) {
         file.tensor_at("t", {std::uint64_t{1} << 32, 1u << 31}, 0, 256);
       }},
      {"tensor 't' has a shape whose size overflows",
       [](GgufBytes& file) {
         file.tensor_at("t", {2, std::uint64_t{1} << 63}, 0, 256);
       }},
      {"tensor 't' has rows of 33 numbers, no whole blocks of Q8_0",
       [](GgufBytes& file) {
         file.tensor_at("t", {33, 32}, 8, 256);
       }},
      {"tensor 't' begins at 260, no multiple of 64",
       [](GgufBytes& file) { file.tensor_at("t", {1}, 0, 260); }},
      {"tensor 't' begins at byte 0 where 12 are taken",
       [](GgufBytes& file) { file.tensor_at("t", {32}, 0, 0); }},
      {"tensor 't' of 400 bytes goes on; it is truncated or damaged",
       [](GgufBytes& file) { file.tensor_at("t", {100}, 0, 384); }},
      {"tensor 't' of 4 bytes goes on; it is truncated or damaged",
       [](GgufBytes& file) { file.tensor_at("t", {1}, 0, ~std::uint64_t{63}); }},
  };
  for (const Case& one : cases) {
    GgufBytes file = good();
    one.make(file);
    const std::string message = refusal(file.bytes());
    EXPECT_NE(message.find("m.gguf: "), message.npos) << message;
    EXPECT_NE(message.find(one.words), message.npos) << one.words << "\n" << message;
  }
  GgufBytes alignment;
  EXPECT_NE(refusal(alignment.add("general.alignment", 24).bytes()).find("no power of two"),
            std::string::npos);
  EXPECT_NE(refusal("").find("m.gguf: an empty file; download it again"), std::string::npos);
  EXPECT_NE(refusal("GGML").find("no GGUF file"), std::string::npos);
  const std::string whole = good().bytes();
  for (std::size_t length = 0; length < whole.size(); length += length < 700 ? 1 : 13) {
    const std::string message = refusal(whole.substr(0, length));
    EXPECT_NE(message, "") << length;
    if (length < 4) continue;
    EXPECT_NE(message.find(": the file ends too early, after "), message.npos) << message;
    EXPECT_NE(message.find("; it is truncated or damaged, download it again"), message.npos);
  }
  EXPECT_EQ(refusal(whole), "");
}

// Lists of keys that nobody looks at would take many times their bytes.
TEST_F(Gguf, LeavesLongListsOutThatNobodyReads) {
  constexpr std::size_t many = 5000;
  std::string texts;
  for (std::size_t i = 0; i < many; ++i) texts += GgufBytes::text("t");
  GgufBytes bytes;
  bytes.add_list("x.bytes", GgufBytes::u8, many, std::string(many, '\7'));
  bytes.add_list("x.texts", GgufBytes::string, many, texts).add("x.last", 5);
  bytes.add_list("tokenizer.ggml.tokens", GgufBytes::string, many, texts);
  const fs::path path = put(bytes.bytes());
  const GgufFile file(path);
  EXPECT_TRUE(file.metadata().at("x.bytes").is_binary());
  EXPECT_TRUE(file.metadata().at("x.texts").is_binary());
  EXPECT_EQ(file.list("tokenizer.ggml.tokens", ListOf::texts).size(), many);
  EXPECT_EQ(file.fields().integer("x.last", 0, 9), 5);
  EXPECT_EQ(file.left_out_list("x.bytes"), nlohmann::json(std::vector<int>(many, 7)));
  EXPECT_NE(error_of([&] {
              file.fields().integer("x.bytes", 0, 9);
            }).find("m.gguf: x.bytes is a long list, but must be an integer"),
            std::string::npos);
  std::size_t copied = 0;
  for (const auto& [key, value] : copied_metadata(file)) {
    copied += key == "x.texts" && std::get<std::vector<std::string>>(value).size() == many;
  }
  EXPECT_EQ(copied, 1u) << "another file of the model has them all";
  texts.back() = '\xff';
  put(good().add_list("x.texts", GgufBytes::string, many, texts).bytes());
  EXPECT_NE(error_of([&] { GgufFile(path).left_out_list("x.texts"); }).find("not valid UTF-8"),
            std::string::npos);
}

// A type that ggml does not have yet is no obstacle before somebody wants its numbers.
TEST_F(Gguf, UnknownTypesAreNamedOnUse) {
  GgufBytes bytes = good();
  bytes.tensor("new", {7, 5}, 1000, "bytes");
  const GgufFile file(put(bytes.bytes()));
  const std::string message = error_of([&] { static_cast<void>(file.format_of("new")); });
  EXPECT_NE(message.find("of the type number 1000"), message.npos) << message;
}

TEST_F(Gguf, OpensAllPartsByTheFirst) {
  const auto part = [](int number, int count, int tensors, const char* tensor) {
    GgufBytes file;
    file.add("split.no", GgufBytes::u16, GgufBytes::number(static_cast<std::uint16_t>(number)));
    file.add("split.count", GgufBytes::u16, GgufBytes::number(static_cast<std::uint16_t>(count)));
    file.add("split.tensors.count", GgufBytes::i32, GgufBytes::number(std::int32_t{tensors}));
    if (number == 0) file.add("general.architecture", "llama");
    if (tensor != nullptr)
      file.tensor(tensor, {4}, 0, std::string(16, static_cast<char>('0' + number)));
    return file.bytes();
  };
  const std::string first = "x-00001-of-00003.gguf", second = "x-00002-of-00003.gguf",
                    third = "x-00003-of-00003.gguf";
  const auto opened = [&](const std::string& name) {
    return error_of([&] { GgufFile file(folder_.path() / name); });
  };
  put(part(0, 3, 2, nullptr), first);
  put(part(1, 3, 2, "a"), second);
  EXPECT_NE(opened(first).find(third + ": this part of 3 is missing; fetch it"), std::string::npos);
  put(part(2, 3, 2, "b"), third);
  const GgufFile file(folder_.path() / first);
  ASSERT_EQ(file.parts().size(), 3u);
  EXPECT_EQ(file.find("b")->file, 2u);
  std::string read(16, ' ');
  file.read(*file.find("b"), 0, std::as_writable_bytes(std::span(read)));
  EXPECT_EQ(read, std::string(16, '2'));
  EXPECT_EQ(file.fields().text("general.architecture", ""), "llama");
  file.require_unchanged();

  EXPECT_NE(opened(second).find("part 2 of 3; name the first one, NAME-00001-of-00003.gguf"),
            std::string::npos);
  put(part(0, 3, 2, nullptr), "renamed.gguf");
  EXPECT_NE(opened("renamed.gguf").find("name the first one"), std::string::npos);
  put(part(2, 3, 2, "a"), third);
  EXPECT_NE(opened(first).find("tensor 'a' appears twice"), std::string::npos);
  put(part(1, 3, 2, "b"), third);
  EXPECT_NE(opened(first).find("calls itself part 2 of 3"), std::string::npos);
  put(part(2, 3, 2, nullptr), third);
  EXPECT_NE(opened(first).find("hold 1 tensors, but split.tensors.count is 2"), std::string::npos);
  EXPECT_NE(error_of([&] { file.require_unchanged(); }).find("was written to"), std::string::npos);
  put(part(0, 0, 9, "a"), "merged.gguf");  // as some files say that are no longer split
  EXPECT_EQ(opened("merged.gguf"), "");
}

TEST_F(Gguf, IsOpenedOnceForAllWhoAsk) {
  const fs::path path = put(good().bytes());
  auto file = open_gguf(path);
  EXPECT_EQ(open_gguf(path), file);
  EXPECT_EQ(held_gguf(path), file);
  EXPECT_EQ(held_gguf(folder_.path()), nullptr);
  // What was read of the one does not belong to another that takes its name.
  fs::rename(put(good().add("more", 1).bytes(), "other.gguf"), path);
  EXPECT_NE(error_of([&] {
              open_gguf(path);
            }).find("m.gguf: was replaced or written to while it was read; start again"),
            std::string::npos);
  file.reset();
  EXPECT_TRUE(open_gguf(path)->fields().has("more"));
}

TEST_F(Gguf, IsToldByNameOrBeginning) {
  EXPECT_TRUE(is_gguf(put("", "empty.gguf")));
  EXPECT_TRUE(is_gguf(put(good().bytes(), "blob")));
  EXPECT_FALSE(is_gguf(put("GGU", "short")));
  EXPECT_FALSE(is_gguf(folder_.path()));
  EXPECT_FALSE(is_gguf(folder_.path() / "none.gguf"));
  fs::create_directory(folder_.path() / "folder.gguf");
  EXPECT_FALSE(is_gguf(folder_.path() / "folder.gguf"));
}

}  // namespace
}  // namespace coppice::testing
