// Every filter, test, method and function, with arguments that fit and that do not, against Jinja2.
#include <gtest/gtest.h>

#include <cctype>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/files.h"
#include "chat/interpreter.h"
#include "chat/rendering.h"

namespace coppice::testing {
namespace {

nlohmann::json calls() {
  return nlohmann::json::parse(read_file(
      std::filesystem::path(COPPICE_SOURCE_DIR) / "tests/golden/template_calls.json", "", 1 << 24));
}

TEST(ChatTemplateCalls, GiveWhatJinjaGivesOrOneLine) {
  int equal = 0, refused = 0, stricter = 0;
  const nlohmann::json all = calls();
  for (const auto& group : all.at("groups")) {
    std::size_t number = 0;
    for (const std::string head : group.at("heads")) {
      for (const std::string tail : group.at("tails")) {
        const std::string source = head + tail;
        const auto& results = group.at("results");
        const auto wanted = results.find(std::to_string(number++));
        try {
          const std::string text = render(source, "{}").bytes();
          if (wanted == results.end()) {
            ADD_FAILURE() << source << "\ngives " << text.substr(0, 100) << "; Jinja2 refuses it";
          } else if (text != wanted->get<std::string>() &&
                     text != "<Namespace>") {  // which Jinja2 writes out
            ADD_FAILURE() << source << "\ngives " << text.substr(0, 100) << "\nnot   " << *wanted;
          }
          ++equal;
        } catch (const Error& error) {
          const std::string_view what = error.what();
          EXPECT_EQ(what.find('\n'), what.npos) << source;
          stricter += wanted != results.end() ? 1 : 0;
          ++refused;
        }
      }
    }
  }
  std::printf("%d equal, %d refused, %d of them by coppice alone\n", equal, refused, stricter);
  EXPECT_GT(equal, 4000);
  EXPECT_LT(stricter, 300);
}

// A new filter, test, method or function must be among the calls.
TEST(ChatTemplateCalls, AreOfEverything) {
  std::set<std::string> called;
  const nlohmann::json all = calls();
  for (const auto& group : all.at("groups")) {
    const std::string head = group.at("heads").front();
    called.insert(head.substr(2));
  }
  const auto expect = [&](const auto& table, const std::string& before, const std::string& after) {
    for (const auto& [name, callee] : table) {
      const std::string call = before + std::string(name) + after;
      EXPECT_EQ(called.count(call), 1u) << call;
    }
  };
  expect(chat::text_filters(), " 'a Bc'|", "");
  expect(chat::sequence_filters(), " 'a Bc'|", "");
  expect(chat::string_methods(), " 'a bAa'.", "");
  expect(chat::dict_methods(), " {'a': 1, 2: 'b'}.", "");
  expect(chat::list_methods(), " ['a', 2, 'a'].", "");
  expect(chat::functions(), " ", "");
  for (const auto& [name, callee] : chat::tests()) {
    const bool word = std::isalpha(static_cast<unsigned char>(name[0])) != 0;
    const std::string call =
        word ? " 'a Bc' is " + std::string(name) : " ['a Bc']|select('" + std::string(name) + "'";
    EXPECT_EQ(called.count(call), 1u) << call;
  }
}

}  // namespace
}  // namespace coppice::testing
