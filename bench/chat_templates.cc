// Renders a folder of chat templates for the conversations of a file of goldens, and compares.
//
//   chat_templates FOLDER GOLDENS.json [DATE]
//
// GOLDENS.json is {"contexts": {NAME: {...}}, "renders": {TEMPLATE: {NAME: TEXT}}}, where an object
// with "error" in TEXT's place says that the template refuses the conversation. DATE is what
// strftime_now() gives for every format, as it was when the goldens were made. Exit code 1 if
// anything differs.
#include <chrono>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <string>

#include "base/error.h"
#include "base/files.h"
#include "chat/chat_template.h"
#include "chat/json.h"

namespace {

using coppice::chat::Value;

constexpr std::uintmax_t largest = std::uintmax_t{256} << 20;

// Where two texts part, with a little around it.
std::string difference(const std::string& got, const std::string& wanted) {
  std::size_t at = 0;
  while (at < got.size() && at < wanted.size() && got[at] == wanted[at]) ++at;
  const std::size_t from = at > 30 ? at - 30 : 0;
  const auto part = [&](const std::string& text) {
    return coppice::printable(text.substr(std::min(from, text.size()), 90));
  };
  return coppice::cat("byte ", at, "\n    got    ", part(got), "\n    wanted ", part(wanted));
}

int run(const std::filesystem::path& folder, const std::filesystem::path& file, const char* date) {
  const Value goldens =
      coppice::chat::parse_json(coppice::read_file(file, "goldens", largest), file.string(), false);
  if (!goldens.is_dict()) coppice::throw_usage("the goldens are no JSON object");
  const Value* contexts = goldens.as_dict().named("contexts");
  const Value* renders = goldens.as_dict().named("renders");
  if (contexts == nullptr || renders == nullptr || !contexts->is_dict() || !renders->is_dict()) {
    coppice::throw_usage("the goldens have no \"contexts\" and \"renders\"");
  }
  const auto context = [&](const Value& key) {
    auto names = contexts->as_dict().find(key)->as_dict().items;
    if (date != nullptr) {
      const auto fixed = [text = std::string(date)](coppice::chat::Interpreter&,
                                                    const coppice::chat::Arguments&) {
        return Value(text);
      };
      names.emplace_back(Value(std::string("strftime_now")),
                         Value(coppice::chat::Callable{"strftime_now", fixed, {}, 1}));
    }
    return Value::dict(std::move(names));
  };
  int equal = 0, all = 0;
  double seconds = 0.0;
  for (const auto& [name, wanted] : renders->as_dict().items) {
    for (const auto& [key, golden] : wanted.as_dict().items) {
      ++all;
      const std::string what = name.text().bytes() + ", " + key.text().bytes();
      const bool refusal = golden.is_dict();
      std::string got;
      bool refused = false;
      try {
        const std::string source = coppice::read_file(folder / name.text().bytes(), "", largest);
        const auto start = std::chrono::steady_clock::now();
        got = coppice::chat::ChatTemplate::parse(source, name.text().bytes())
                  .render(context(key), std::time(nullptr))
                  .bytes();
        seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      } catch (const coppice::Error& error) {
        refused = true;
        got = error.what();
      }
      if (refused != refusal) {
        std::printf("%s: %s\n  %s\n", what.c_str(),
                    refused ? "refused" : "rendered, but the golden says that it is refused",
                    coppice::printable(got).c_str());
      } else if (!refusal && got != golden.text().bytes()) {
        std::printf("%s: differs at %s\n", what.c_str(),
                    difference(got, golden.text().bytes()).c_str());
      } else {
        ++equal;
        if (refused) std::printf("%s: refused, as it should: %s\n", what.c_str(), got.c_str());
      }
    }
  }
  std::printf("%d of %d equal; %.3f ms to parse and render one\n", equal, all,
              1e3 * seconds / std::max(all, 1));
  return equal == all ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 3 || argc > 4)
    coppice::throw_usage("usage: chat_templates FOLDER GOLDENS.json [DATE]");
  return run(argv[1], argv[2], argc > 3 ? argv[3] : nullptr);
} catch (const std::exception& error) {
  std::fprintf(stderr, "chat_templates: %s\n", error.what());
  return 2;
}
