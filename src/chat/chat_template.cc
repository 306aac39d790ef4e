#include "chat/chat_template.h"

#include <set>

#include "base/error.h"
#include "base/remedy.h"
#include "base/utf8.h"
#include "chat/interpreter.h"
#include "chat/names_read.h"
#include "chat/parser.h"

namespace coppice::chat {

struct ChatTemplate::Impl {
  std::string name;
  Block body;
  std::set<std::string> names;  ///< that it reads
};

ChatTemplate::ChatTemplate(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

ChatTemplate ChatTemplate::parse(std::string_view source, const std::string& name) {
  constexpr std::size_t largest = std::size_t{1} << 20;
  if (source.size() > largest) {
    throw_failure(cat(name, ": larger than 1 MiB; fetch the file again"));
  }
  if (!is_valid_utf8(source)) throw_failure(cat(name, ": not valid UTF-8; fetch the file again"));
  auto impl = std::make_unique<Impl>();
  impl->name = name;
  try {
    impl->body = Parser(source).parse();
    impl->names = names_read(impl->body);
  } catch (const TemplateError& error) {
    throw_failure(
        with_remedy(cat(name, ": ", error.what()), "correct the template or fetch it again"));
  }
  return ChatTemplate(std::move(impl));
}

namespace {

// About the bytes of a value and all that is in it.
std::size_t size_of(const Value& value) {
  constexpr std::size_t own = 32;
  std::size_t size = own;
  if (value.is_string()) size += value.text().size();
  if (value.is_list()) {
    for (const Value& item : value.as_list().items) size += size_of(item);
  }
  if (value.is_dict()) {
    for (const auto& [key, item] : value.as_dict().items) size += size_of(key) + size_of(item);
  }
  return size;
}

}  // namespace

bool ChatTemplate::reads(std::string_view name) const {
  return impl_->names.contains(std::string(name));
}

Text ChatTemplate::render(const Value& context, std::time_t now) const {
  const Budget budget(size_of(context));
  Interpreter interpreter(context.as_dict(), now);
  try {
    return interpreter.render(impl_->body);
  } catch (const TemplateError& error) {
    std::string what = error.what();  // of any length: raise_exception
    if (what.size() > 400) what = what.substr(0, 400) + "...";
    throw_failure(with_remedy(cat(impl_->name, ": line ", interpreter.line(), ": ", what),
                              "the template refuses these messages"));
  }
}

}  // namespace coppice::chat
