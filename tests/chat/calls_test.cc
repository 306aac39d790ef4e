// Every filter, test, method and function, with arguments that fit and that do not, against Jinja2.
#include <gtest/gtest.h>

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

// Where Jinja2's result depends on what coppice does not have, or where coppice says more.
bool may_differ(const std::string& source, const std::string& ours, const std::string& wanted) {
  static_cast<void>(source);
  static_cast<void>(ours);
  static_cast<void>(wanted);
  return false;
}

TEST(ChatTemplateCalls, GiveWhatJinjaGivesOrOneLine) {
  int equal = 0, refused = 0;
  for (const auto& group : calls().at("groups")) {
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
          } else if (text != *wanted && !may_differ(source, text, *wanted)) {
            ADD_FAILURE() << source << "\ngives " << text.substr(0, 100) << "\nnot   " << *wanted;
          }
          ++equal;
        } catch (const Error& error) {
          const std::string_view what = error.what();
          EXPECT_EQ(what.find('\n'), what.npos) << source;
          EXPECT_EQ(what.find("fills more"), what.npos) << source;
          if (wanted != results.end()) {
            ADD_FAILURE() << source << "\n" << what << "\nnot   " << *wanted;
          }
          ++refused;
        }
      }
    }
  }
  std::printf("%d equal, %d refused\n", equal, refused);
}

}  // namespace
}  // namespace coppice::testing
