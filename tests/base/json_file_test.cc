#include "base/json_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <new>
#include <string>

#include "base/error.h"
#include "reference/files.h"

namespace coppice {
namespace {

using testing::error_of;

std::string refusal(const std::string& text) {
  return error_of([&] { parse_json_object(text, "FILE"); });
}

TEST(JsonFile, OrderedObjectsKeepTheirKeysOrder) {
  const OrderedJson json =
      parse_typed_json(R"({"z": 1, "a": {"y": [2], "b": 3}, "m": []})", "FILE");
  EXPECT_EQ(json->dump(), R"({"z":1,"a":{"y":[2],"b":3},"m":[]})");
  EXPECT_THROW(parse_typed_json(R"({"a": {"x": 1, "x": 2}})", "FILE"), Error);
  EXPECT_THROW(parse_typed_json(R"({"a": 1, "b": {"c": 1}, "a": 2})", "FILE"), Error);
  EXPECT_NO_THROW(parse_typed_json(R"({"a": {"b": 1}, "b": {"a": 1}})", "FILE"));
  EXPECT_THROW(parse_typed_json(std::string(65, '['), "FILE"), Error);
}

TEST(Json, ReadsWhatTheStandardAllows) {
  const JsonObject json = parse_json_object(
      R"( {"a": [1, -2, 3.5, "x\u00e9\n", true, false, null, {}, []], "b": {"c": {"a": 1e3}}} )",
      "FILE");
  EXPECT_EQ(json->dump(),
            "{\"a\":[1,-2,3.5,\"x\u00e9\\n\",true,false,null,{},[]],\"b\":{\"c\":{\"a\":1000.0}}}");
  EXPECT_EQ(json->at("a")[0].type(), nlohmann::json::value_t::number_unsigned);
  EXPECT_EQ(json->at("a")[1].type(), nlohmann::json::value_t::number_integer);
  EXPECT_EQ(parse_json_object("{\"n\":18446744073709551615}", "FILE")->at("n"), UINT64_MAX);
}

TEST(Json, NamesWhatItRefusesAndWhere) {
  EXPECT_EQ(refusal(R"({"a": 1, "b": {"a": 1}, "a": 2})"),
            "FILE: key 'a' appears twice; remove one");
  EXPECT_EQ(refusal(R"({"b": {"c": 1, "c": 1}})"), "FILE: key 'c' appears twice; remove one");
  EXPECT_NE(refusal(R"({"a": 1e999})").find("FILE: holds a number out of range before byte 11"),
            std::string::npos);
  EXPECT_NE(refusal("[1]").find("FILE: holds a JSON array, not an object"), std::string::npos);
  EXPECT_NE(refusal(std::string("{\"a\": 1}\0{", 10)).find("NUL byte at 8"), std::string::npos);
  for (const char* text : {"", " ", "{", "}", "{\"a\"}", "{\"a\":}", "{\"a\":1,}", "{a:1}",
                           "{\"a\":1}x", "{\"a\":01}", "{\"a\":NaN}", "{\"a\":\"\xff\"}",
                           "{\"a\":\"\\ud800\"}", "{\"a\":[1,2}", "/**/{}", "{\"a\":'b'}"}) {
    EXPECT_NE(refusal(text).find("FILE: not valid JSON at byte "), std::string::npos) << text;
  }
}

TEST(Json, NestsSixtyFourDeepAndNoDeeper) {
  const auto nested = [](int depth) {
    std::string text = "{\"a\":";
    for (int i = 1; i < depth; ++i) text += i % 2 == 0 ? "{\"a\":" : "[";
    text += "1";
    for (int i = depth - 1; i >= 1; --i) text += i % 2 == 0 ? "}" : "]";
    return text + "}";
  };
  EXPECT_EQ(refusal(nested(64)), "");
  EXPECT_NE(refusal(nested(65)).find("nested deeper than 64 levels"), std::string::npos);
  EXPECT_NE(refusal("{\"a\":" + std::string(1'000'000, '[')).find("nested"), std::string::npos);
}

// 18 MB of lists would take 600 MB.
TEST(Json, ValuesTakeBoundedMemory) {
  const auto lists = [](std::size_t count) {
    std::string text = "{\"a\":[";
    const std::string one = std::string(60, '[') + std::string(60, ']') + ",";
    text.reserve(one.size() * (count + 1));
    for (std::size_t i = 0; i < count; ++i) text += one;
    return text + "1]}";
  };
  EXPECT_EQ(refusal(lists(10'000)), "");
  EXPECT_NE(refusal(lists(150'000)).find("holds values that take more than 512 MiB of memory; "),
            std::string::npos);
}

TEST(Json, WhatIsTypedHasNoFileToFetch) {
  for (const std::string& text : {std::string("{"), std::string(65, '['), std::string("{}\0", 3)}) {
    EXPECT_NE(refusal(text).find("; correct it or fetch the file again"), std::string::npos);
    const std::string message = error_of([&] { parse_typed_json(text, "SCHEMA"); });
    EXPECT_TRUE(message.starts_with("SCHEMA: ") && message.ends_with("; correct it")) << message;
  }
}

// A parser that walks the elements before each new one takes minutes for these, and a minute is
// what a test of this program has.
TEST(Json, TakesTimeLinearInItsLength) {
  for (const char* element : {"{},", "[],", "{\"a\":1},", "[[]],"}) {
    std::string text = "{\"a\":[";
    while (text.size() < (4u << 20)) text += element;
    text += "0]}";
    EXPECT_GT(parse_json_object(text, "FILE")->at("a").size(), 400'000u);
  }
  std::string text = "{";
  for (int i = 0; text.size() < (4u << 20); ++i) text += cat("\"", i, "\":{},");
  EXPECT_GT(parse_json_object(text + "\"x\":0}", "FILE")->size(), 300'000u);
}

#if !defined(__SANITIZE_ADDRESS__)  // whose shadow takes more address space than any limit
// All memory that the process may still have.
void use_up_memory() {
  void** last = nullptr;  // each block holds the one before: none may be left out
  for (std::size_t bytes = std::size_t{64} << 20; bytes >= 16;) {
    void** const more = static_cast<void**>(std::malloc(bytes));
    if (more == nullptr) {
      bytes /= 2;
    } else {
      *more = last;
      last = more;
    }
  }
}

// Wherever memory ends, parsing throws, and the object's end needs none: each in a process of its
// own.
TEST(Json, ShortOfMemoryItThrows) {
  std::string text = "{\"a\":[";
  while (text.size() < (1u << 20)) text += "[[],{\"b\":{}}],";
  text += "0]}";
  int refused = 0, parsed = 0;
  for (std::size_t free_bytes = 1 << 20; parsed < 3; free_bytes = free_bytes * 6 / 5) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      std::size_t pages = 0;
      std::FILE* self = std::fopen("/proc/self/statm", "r");
      if (self == nullptr || std::fscanf(self, "%zu", &pages) != 1) ::_exit(9);
      const rlim_t most =
          pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)) + free_bytes + (2 << 20);
      const rlimit limit{most, most};
      ::setrlimit(RLIMIT_AS, &limit);
      void* const free_again = ::operator new(free_bytes, std::nothrow);
      use_up_memory();
      ::operator delete(free_again);
      try {
        const JsonObject json = parse_json_object(text, "FILE");
        use_up_memory();
      } catch (const std::bad_alloc&) {
        ::_exit(1);
      }
      ::_exit(0);
    }
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status) << " at " << free_bytes;
    ASSERT_LE(WEXITSTATUS(status), 1);
    (WEXITSTATUS(status) == 1 ? refused : parsed)++;
  }
  EXPECT_GT(refused, 5);
}
#endif

}  // namespace
}  // namespace coppice
