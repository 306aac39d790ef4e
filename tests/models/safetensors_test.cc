// The safetensors format, byte for byte: what must be read and what must be refused.
#include "models/safetensors.h"

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>

#include "base/error.h"
#include "models/checkpoint.h"
#include "reference/tiny_model.h"

namespace coppice {
namespace {

using testing::safetensors_bytes;
using testing::TemporaryFolder;
using testing::TensorToWrite;
using testing::write_file;

std::map<std::string, StoredTensor> parse(const std::string& bytes) {
  const std::size_t header =
      safetensors_header_bytes(std::string_view(bytes).substr(0, 8), bytes.size(), "file");
  return parse_safetensors(std::string_view(bytes).substr(8, header), bytes.size() - 8 - header,
                           "file");
}

std::string with_length(std::uint64_t length, const std::string& rest) {
  std::string out;
  for (int i = 0; i < 8; ++i) out += static_cast<char>(length >> (8 * i) & 0xff);
  return out + rest;
}

void refuse(const std::string& bytes, const std::string& what) {
  try {
    parse(bytes);
    ADD_FAILURE() << "accepted: " << what;
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_EQ(message.find('\n'), message.npos) << message;
    EXPECT_EQ(message.rfind("file: ", 0), 0u) << message;
    EXPECT_EQ(error.kind(), ErrorKind::failure);
  }
}

/// A tensor entry.
std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape +
         ",\"data_offsets\":" + offsets + "}";
}

void refuse_header(const std::string& header, std::size_t data_bytes) {
  refuse(safetensors_bytes(header, std::string(data_bytes, 'x')), header);
}

TEST(Safetensors, ReadsWhatTheFormatAllows) {
  const std::string data(16, 'd');
  auto tensors = parse(safetensors_bytes("{" + entry("t", "I32", "[2,2]", "[0,16]") + "}", data));
  ASSERT_EQ(tensors.size(), 1u);
  EXPECT_EQ(tensors.at("t").dtype, "I32");
  EXPECT_EQ(tensors.at("t").shape, (std::vector<std::uint64_t>{2, 2}));
  EXPECT_EQ(tensors.at("t").elements(), 4u);
  EXPECT_EQ(tensors.at("t").bytes, 16u);

  tensors = parse(safetensors_bytes("{" + entry("s", "F32", "[]", "[0,4]") + "}", "abcd"));
  EXPECT_EQ(tensors.at("s").elements(), 1u);
  tensors = parse(safetensors_bytes("{" + entry("z", "F32", "[2,0]", "[0,0]") + "}", ""));
  EXPECT_EQ(tensors.at("z").elements(), 0u);
  EXPECT_TRUE(parse(safetensors_bytes("{}", "")).empty());
  EXPECT_TRUE(parse(safetensors_bytes("{}    ", "")).empty());
  tensors = parse(safetensors_bytes(
      "{\"__metadata__\":{\"format\":\"pt\"}," + entry("t", "U8", "[3]", "[0,3]") + "}", "abc"));
  EXPECT_EQ(tensors.size(), 1u);
  // Names in another order than the data, an empty tensor between two others.
  const std::string bytes = safetensors_bytes("{" + entry("a", "U8", "[2]", "[3,5]") + "," +
                                                  entry("m", "F32", "[0]", "[3,3]") + "," +
                                                  entry("z", "U8", "[3]", "[0,3]") + "}",
                                              "zzzaa");
  tensors = parse(bytes);
  EXPECT_EQ(tensors.at("a").begin, 3u);
  EXPECT_EQ(tensors.at("a").bytes, 2u);
  EXPECT_EQ(tensors.at("z").begin, 0u);
  for (const auto& [dtype, size] : std::map<std::string, std::size_t>{{"BOOL", 1},
                                                                      {"I8", 1},
                                                                      {"U16", 2},
                                                                      {"F16", 2},
                                                                      {"BF16", 2},
                                                                      {"F8_E4M3", 1},
                                                                      {"F8_E5M2", 1},
                                                                      {"U32", 4},
                                                                      {"F64", 8},
                                                                      {"I64", 8},
                                                                      {"U64", 8},
                                                                      {"I16", 2}}) {
    const std::string end = std::to_string(size);
    EXPECT_EQ(parse(safetensors_bytes("{" + entry("t", dtype, "[1]", "[0," + end + "]") + "}",
                                      std::string(size, 'x')))
                  .size(),
              1u)
        << dtype;
  }
}

TEST(Safetensors, RefusesBadLengths) {
  for (std::size_t n = 0; n < 8; ++n) refuse(std::string(n, '\0'), "few bytes");
  refuse(with_length(0, ""), "length 0");
  refuse(with_length(0, "{}"), "length 0 before a header");
  refuse(with_length(1, "{"), "length 1");
  refuse(with_length(UINT64_MAX, "{}"), "8 + n overflows");
  refuse(with_length(UINT64_MAX - 7, "{}"), "8 + n wraps to 0");
  refuse(with_length(std::uint64_t{1} << 63, "{}"), "sign bit");
  refuse(with_length(100'000'001, "{}" + std::string(100'000'100, ' ')), "above the limit");
  refuse(with_length(3, "{}"), "one byte too few");
  refuse(with_length(1000, "{}"), "truncated header");
}

TEST(Safetensors, RefusesBadHeaders) {
  for (const char* header : {"[]", "\"s\"", " {}", "\n{}", "{", "{}x", "{}{}", "{\"a\"}",
                             "nonsense", "{\"a\":1}", "{\"a\":[]}", "{\"a\":null}", "{\"a\":{}}",
                             "{a:1}", "{/**/}", "\xEF\xBB\xBF{}", "{\"\xff\":1}", "{}\xff"}) {
    refuse_header(header, 0);
  }
  refuse(safetensors_bytes(std::string("{}\0\0", 4), ""), "NUL after the header");
  refuse(safetensors_bytes(std::string("{}\0garbage", 10), ""), "garbage after NUL");
  const std::string deep(200'000, '[');
  refuse_header("{\"a\":" + deep, 0);
  refuse_header("{\"a\":" + deep + std::string(200'000, ']') + "}", 0);
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"a\":";
  refuse_header(objects, 0);
  refuse_header("{\"__metadata__\":[]}", 0);
  refuse_header("{\"__metadata__\":\"x\"}", 0);
  refuse_header("{\"__metadata__\":{\"a\":1}}", 0);
  refuse_header("{\"__metadata__\":{\"a\":{\"b\":\"c\"}}}", 0);
}

TEST(Safetensors, RefusesDuplicateKeys) {
  const std::string t = entry("t", "U8", "[2]", "[0,2]");
  refuse_header("{" + t + "," + t + "}", 2);
  refuse_header("{" + t + "," + entry("t", "U8", "[2]", "[2,4]") + "}", 4);
  refuse_header(
      "{" + entry("\\u0074", "U8", "[1]", "[0,1]") + "," + entry("t", "U8", "[1]", "[1,2]") + "}",
      2);
  refuse_header("{\"t\":{\"dtype\":\"U8\",\"dtype\":\"I8\",\"shape\":[2],\"data_offsets\":[0,2]}}",
                2);
  refuse_header("{\"t\":{\"dtype\":\"U8\",\"shape\":[2],\"shape\":[2],\"data_offsets\":[0,2]}}", 2);
  refuse_header("{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}", 0);
  refuse_header("{\"__metadata__\":{},\"__metadata__\":{}}", 0);
}

TEST(Safetensors, RefusesBadTensors) {
  const auto refuse_entry = [](const std::string& dtype, const std::string& shape,
                               const std::string& offsets, std::size_t bytes) {
    refuse_header("{" + entry("t", dtype, shape, offsets) + "}", bytes);
  };
  refuse_entry("F31", "[1]", "[0,4]", 4);
  refuse_entry("f32", "[1]", "[0,4]", 4);
  refuse_entry("", "[1]", "[0,4]", 4);
  refuse_entry("F32", "[2,2]", "[0,4]", 4);
  refuse_entry("F32", "[1]", "[0,16]", 16);
  refuse_entry("F32", "[-1]", "[0,4]", 4);
  refuse_entry("F32", "[1.0]", "[0,4]", 4);
  refuse_entry("F32", "[1e0]", "[0,4]", 4);
  refuse_entry("F32", "[\"1\"]", "[0,4]", 4);
  refuse_entry("F32", "[null]", "[0,4]", 4);
  refuse_entry("F32", "[[1]]", "[0,4]", 4);
  refuse_entry("F32", "1", "[0,4]", 4);
  refuse_entry("F32", "{}", "[0,4]", 4);
  refuse_entry("F32", "[18446744073709551616]", "[0,4]", 4);
  refuse_entry("F32", "[4294967296,4294967296]", "[0,0]", 0);
  refuse_entry("F32", "[4294967297,4294967297]", "[0,4]", 4);
  refuse_entry("F32", "[4611686018427387904]", "[0,0]", 0);
  refuse_entry("F32", "[4611686018427387905]", "[0,4]", 4);
  refuse_entry("F32", "[4294967296,4294967296,0]", "[0,0]", 0);
  refuse_entry("F32", "[1]", "[0]", 4);
  refuse_entry("F32", "[1]", "[0,4,4]", 4);
  refuse_entry("F32", "[1]", "[]", 4);
  refuse_entry("F32", "[1]", "4", 4);
  refuse_entry("F32", "[1]", "[0.0,4.0]", 4);
  refuse_entry("F32", "[1]", "[-4,0]", 4);
  refuse_entry("F32", "[1]", "[0,\"4\"]", 4);
  refuse_entry("F32", "[1]", "[4,0]", 4);
  refuse_entry("F32", "[1]", "[0,18446744073709551615]", 4);
  refuse_entry("F32", "[1]", "[18446744073709551612,18446744073709551616]", 4);
  refuse_entry("F4", "[1]", "[0,1]", 1);
  refuse_header("{\"t\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4);
  refuse_header("{\"t\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4);
  refuse_header("{\"t\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4);
  refuse_header("{\"t\":{\"dtype\":32,\"shape\":[1],\"data_offsets\":[0,4]}}", 4);
}

TEST(Safetensors, RefusesDataThatIsNotCoveredOnce) {
  const auto two = [](const std::string& a, const std::string& b, std::size_t bytes) {
    refuse_header("{" + entry("a", "U8", "[4]", a) + "," + entry("b", "U8", "[4]", b) + "}", bytes);
  };
  two("[0,4]", "[8,12]", 12);  // a hole
  two("[0,4]", "[2,6]", 8);    // an overlap
  two("[0,4]", "[0,4]", 4);    // the same bytes twice
  two("[4,8]", "[8,12]", 12);  // nothing at the beginning
  two("[0,4]", "[4,8]", 9);    // a byte left over
  two("[0,4]", "[4,8]", 7);    // a byte too few
  refuse_header("{}", 1);
  refuse_header("{" + entry("a", "U8", "[0]", "[1,1]") + "}", 1);
  refuse_header(
      "{" + entry("a", "U8", "[0]", "[5,5]") + "," + entry("b", "U8", "[4]", "[0,4]") + "}", 4);
}

TEST(Safetensors, NamesInMessagesAreEscaped) {
  refuse_header("{" + entry("a\\nb\\u0000\\u001b[2J", "F31", "[1]", "[0,4]") + "}", 4);
  refuse_header("{" + entry("a", "F\\n31", "[1]", "[0,4]") + "}", 4);
  refuse_header("{" + entry("a", "F32", "[\"\\n\"]", "[0,4]") + "}", 4);
  refuse_header("{\"__metadata__\":{\"a\\nb\":1}}", 0);
}

TEST(Safetensors, EveryPrefixOfAGoodFileIsRefused) {
  const std::string good =
      safetensors_bytes({{"a", "F32", {2}, "12345678"}, {"b", "BF16", {3}, "123456"}});
  EXPECT_EQ(parse(good).size(), 2u);
  for (std::size_t n = 0; n < good.size(); ++n) refuse(good.substr(0, n), "a prefix");
  refuse(good + "x", "a byte more");
}

TEST(Safetensors, NoDamagedByteCrashes) {
  const std::string good =
      safetensors_bytes({{"a", "F32", {2}, "12345678"}, {"b", "BF16", {3}, "123456"}});
  for (std::size_t i = 0; i < good.size() - 14; ++i) {
    for (int value = 0; value < 256; ++value) {
      std::string bytes = good;
      bytes[i] = static_cast<char>(value);
      try {
        for (const auto& [name, tensor] : parse(bytes)) {
          EXPECT_LE(tensor.begin + tensor.bytes, 14u);
        }
      } catch (const Error&) {
      }
    }
  }
}

TEST(SafetensorsFiles, RefuseWhatIsNoFile) {
  const TemporaryFolder folder;
  EXPECT_THROW(SafetensorsFile(folder.path() / "none"), Error);
  EXPECT_THROW(SafetensorsFile(folder.path()), Error);
  write_file(folder.path() / "empty", "");
  EXPECT_THROW(SafetensorsFile(folder.path() / "empty"), Error);
  const auto path = folder.path() / "file";
  write_file(path, safetensors_bytes({{"a", "U8", {9000}, std::string(9000, 'x')}}));
  const SafetensorsFile file(path);
  const StoredTensor& tensor = file.tensors().at("a");
  EXPECT_NO_THROW(file.require_unchanged());
  EXPECT_EQ(file.read(tensor), std::vector<std::byte>(9000, std::byte{'x'}));
  std::vector<std::byte> some(10);
  EXPECT_NO_THROW(file.read(tensor, 8990, some));
  EXPECT_THROW(file.read(tensor, 8991, some), Error) << "beyond the tensor";
  std::filesystem::resize_file(path, 100);
  EXPECT_THROW(file.require_unchanged(), Error);
  EXPECT_THROW(file.read(tensor), Error) << "the bytes are gone";
}

TEST(SafetensorsFiles, SeeThatTheyWereWrittenOver) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "file";
  write_file(path, safetensors_bytes({{"a", "U8", {9000}, std::string(9000, 'x')}}));
  const SafetensorsFile file(path);
  const auto before = std::filesystem::last_write_time(path);
  std::fstream(path, std::ios::binary | std::ios::in | std::ios::out).seekp(500) << "yyyy";
  std::filesystem::last_write_time(path, before + std::chrono::milliseconds(1));
  EXPECT_THROW(file.require_unchanged(), Error);
}

class Shards : public ::testing::Test {
 protected:
  Shards() {
    write_file(dir_ / "one.safetensors", safetensors_bytes({{"a", "U8", {2}, "aa"}}));
    write_file(dir_ / "two.safetensors",
               safetensors_bytes({{"b", "U8", {2}, "bb"}, {"c", "U8", {2}, "cc"}}));
    index(R"({"metadata": {"total_size": 6}, "weight_map":
              {"a": "one.safetensors", "b": "two.safetensors", "c": "two.safetensors"}})");
  }
  void index(const std::string& text) { write_file(dir_ / "model.safetensors.index.json", text); }
  std::string refusal() {
    try {
      Checkpoint checkpoint(dir_);
    } catch (const Error& error) {
      const std::string message = error.what();
      EXPECT_EQ(message.find('\n'), message.npos) << message;
      return message;
    }
    ADD_FAILURE() << "accepted";
    return {};
  }
  const TemporaryFolder folder_;
  const std::filesystem::path dir_ = folder_.path();
};

TEST_F(Shards, AreReadByTheirIndex) {
  const Checkpoint checkpoint(dir_);
  EXPECT_EQ(checkpoint.files().size(), 2u);
  EXPECT_EQ(checkpoint.names().size(), 3u);
  ASSERT_NE(checkpoint.find("c"), nullptr);
  EXPECT_EQ(checkpoint.file_of("c").read(*checkpoint.find("c")),
            std::vector<std::byte>(2, std::byte{'c'}));
  EXPECT_EQ(checkpoint.find("d"), nullptr);
  EXPECT_EQ(checkpoint.file_of("b").name(), (dir_ / "two.safetensors").string());
}

TEST_F(Shards, OneFileGoesFirst) {
  write_file(dir_ / "model.safetensors", safetensors_bytes({{"x", "U8", {1}, "x"}}));
  EXPECT_EQ(Checkpoint(dir_).files().size(), 1u);
}

TEST_F(Shards, MissingOrWrongAreNamed) {
  index(R"({"weight_map": {"a": "three.safetensors"}})");
  EXPECT_NE(refusal().find("three.safetensors: this shard is missing"), std::string::npos);
  index(R"({"weight_map": {"a": "two.safetensors"}})");
  EXPECT_NE(refusal().find("tensor 'a' is not in 'two.safetensors'"), std::string::npos);
  for (const char* name : {"../one.safetensors", "/etc/passwd", "sub/one.safetensors", "..", ".",
                           "", "one.safetensors\\u0000", "a\\\\b"}) {
    index(std::string(R"({"weight_map": {"a": ")") + name + "\"}}");
    EXPECT_NE(refusal().find("no file name within the folder"), std::string::npos) << name;
  }
  for (const char* text : {"", "{}", "[]", R"({"weight_map": []})", R"({"weight_map": {}})",
                           R"({"weight_map": {"a": 3}})",
                           R"({"weight_map": {"a": "one.safetensors", "a": "two.safetensors"}})"}) {
    index(text);
    EXPECT_NE(refusal().find("index.json"), std::string::npos) << text;
  }
}

TEST_F(Shards, NoWeightsAtAll) {
  std::filesystem::remove(dir_ / "model.safetensors.index.json");
  EXPECT_NE(refusal().find("neither model.safetensors nor"), std::string::npos);
  write_file(dir_ / "pytorch_model.bin", "x");
  EXPECT_NE(refusal().find("pytorch_model.bin"), std::string::npos);
}

}  // namespace
}  // namespace coppice
