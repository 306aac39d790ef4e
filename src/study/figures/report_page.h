// One self-contained HTML page of text, figures and tables.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "study/figures/table.h"

namespace coppice::study {

/// Makes a button of every column's name, for pointer and keyboard: rows ascend, descend, then
/// stand as they were. Numbers go by their value, intervals by their estimate, empty cells last.
/// Free of what XML would not take as it stands.
extern const std::string_view table_script;

/// "sha256-" and the script's hash in base64, by which a page's policy allows this script and no
/// other.
extern const std::string_view table_script_hash;

struct Figure {
  std::string name = {};     ///< of its file, without extension; unique in a report
  std::string svg = {};      ///< from one of the to_svg functions; put in as it is
  std::string caption = {};  ///< without its number
};

/// Folded where it has more rows than longest_open_table: its caption alone is then seen, until a
/// reader opens it, and printed.
struct CaptionedTable {
  std::string name = {};     ///< of its files, as a figure's
  std::string caption = {};  ///< without its number
  Table table = {};
  /// Addresses of the same table in other forms, relative to the page; may be empty.
  std::vector<std::string> files = {};
};

inline constexpr std::size_t longest_open_table = 16;

using Block = std::variant<Figure, CaptionedTable>;

struct Section {
  std::string heading = {};
  std::vector<Block> blocks = {};
};

struct ReportPage {
  std::string title = {};
  std::vector<std::string> intro = {};  ///< paragraphs
  /// How it was made: names and values, such as models, device, version, command.
  std::vector<std::pair<std::string, std::string>> facts = {};
  std::vector<Section> sections = {};
};

/// The page. It loads nothing, follows the reader's light or dark setting and prints without
/// breaking figures. A short script, which it does not need, lets readers sort tables by the names
/// of their columns. Figures and tables are numbered through. All text is escaped.
std::string to_html(const ReportPage& page);

}  // namespace coppice::study
