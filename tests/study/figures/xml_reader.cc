#include "study/figures/xml_reader.h"

#include <cctype>
#include <stdexcept>

#include "base/utf8.h"

namespace coppice::test {
namespace {

class Reader {
 public:
  explicit Reader(std::string_view document) : all_(document), rest_(document) {}

  std::vector<XmlElement> read() {
    if (!is_valid_utf8(all_)) fail("invalid UTF-8");
    for (const char c : all_) {
      const auto byte = static_cast<unsigned char>(c);
      if (byte < 0x20 && c != '\n' && c != '\t' && c != '\r') fail("a control character");
    }
    take("<!DOCTYPE html>");
    do {
      skip_space();
      read_element();
      read_content();
    } while (!open_.empty());
    skip_space();
    if (!rest_.empty()) fail("text after the root element");
    return std::move(elements_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw std::runtime_error(what + " at byte " + std::to_string(all_.size() - rest_.size()) +
                             " before '" + std::string(rest_.substr(0, 40)) + "'");
  }
  bool take(std::string_view expected) {
    if (!rest_.starts_with(expected)) return false;
    rest_.remove_prefix(expected.size());
    return true;
  }
  void need(std::string_view expected) {
    if (!take(expected)) fail("expected " + std::string(expected));
  }
  void skip_space() {
    while (!rest_.empty() && std::isspace(static_cast<unsigned char>(rest_[0])) != 0) {
      rest_.remove_prefix(1);
    }
  }
  std::string name() {
    std::size_t n = 0;
    const auto is_part = [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == ':' || c == '_';
    };
    while (n < rest_.size() && is_part(rest_[n])) ++n;
    if (n == 0 || std::isalpha(static_cast<unsigned char>(rest_[0])) == 0) fail("expected a name");
    const std::string found(rest_.substr(0, n));
    rest_.remove_prefix(n);
    return found;
  }
  char reference() {
    for (const auto& [text, c] : {std::pair{"&amp;", '&'},
                                  {"&lt;", '<'},
                                  {"&gt;", '>'},
                                  {"&quot;", '"'},
                                  {"&#39;", '\''}}) {
      if (take(text)) return c;
    }
    fail("an unknown reference");
  }
  // Characters up to one of `ends`, which stays.
  std::string characters(std::string_view ends) {
    std::string out;
    while (!rest_.empty() && ends.find(rest_[0]) == std::string_view::npos) {
      if (rest_[0] == '&') {
        out += reference();
        continue;
      }
      out += rest_[0];
      rest_.remove_prefix(1);
    }
    return out;
  }
  void read_element() {
    need("<");
    XmlElement element;
    element.name = name();
    element.depth = open_.size();
    for (;;) {
      const bool parted = !rest_.empty() && std::isspace(static_cast<unsigned char>(rest_[0])) != 0;
      skip_space();
      const bool empty = take("/>");
      if (empty || take(">")) {
        elements_.push_back(element);
        if (!empty) open_.push_back(elements_.size() - 1);
        return;
      }
      if (!parted) fail("expected space before an attribute");
      const std::string attribute = name();
      need("=\"");
      if (!element.attributes.emplace(attribute, characters("\"<")).second) {
        fail("a repeated attribute " + attribute);
      }
      need("\"");
    }
  }
  void read_content() {
    while (!open_.empty()) {
      elements_[open_.back()].text += characters("<");
      if (take("</")) {
        need(elements_[open_.back()].name);
        need(">");
        open_.pop_back();
      } else if (rest_.empty()) {
        fail("an element that is not closed");
      } else {
        read_element();
      }
    }
  }

  std::string_view all_, rest_;
  std::vector<XmlElement> elements_;
  std::vector<std::size_t> open_;  // numbers of the elements that are not closed yet
};

}  // namespace

std::vector<XmlElement> read_xml(std::string_view document) { return Reader(document).read(); }

}  // namespace coppice::test
