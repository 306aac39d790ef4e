// A reader of the XML that figures are made of: it refuses what is not well-formed (XML 1.0, as far
// as figures and report pages use it) and lists the elements.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace coppice::test {

struct XmlElement {
  std::string name;
  std::map<std::string, std::string> attributes;
  std::string text;  ///< characters directly inside, references resolved
  std::size_t depth = 0;

  double number(const std::string& attribute) const { return std::stod(attributes.at(attribute)); }
  bool has(const std::string& attribute, const std::string& value) const {
    const auto found = attributes.find(attribute);
    return found != attributes.end() && found->second == value;
  }
};

/// Elements in document order. Throws std::runtime_error naming the place of the first mistake.
std::vector<XmlElement> read_xml(std::string_view document);

}  // namespace coppice::test
