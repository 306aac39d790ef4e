// One self-contained HTML page of text, figures and tables.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "study/figures/table.h"

namespace coppice::study {

struct Figure {
  std::string name = {};     ///< of its file, without extension; unique in a report
  std::string svg = {};      ///< from to_svg(); put in as it is
  std::string caption = {};  ///< without its number
};

/// Folded where it has more rows than longest_open_table: on a screen its caption alone is then
/// seen, until a reader opens it. On paper it is whole.
struct CaptionedTable {
  std::string name = {};     ///< of its files, as a figure's
  std::string caption = {};  ///< without its number
  Table table = {};
  /// Addresses of the same table in other forms, relative to the page; may be empty.
  std::vector<std::string> files = {};
};

inline constexpr std::size_t longest_open_table = 16;

/// Its figures stand side by side, if there is room, and before its tables.
struct Section {
  std::string heading = {};
  std::vector<Figure> figures = {};
  std::vector<CaptionedTable> tables = {};
};

struct ReportPage {
  std::string title = {};
  std::vector<std::string> verdict = {};  ///< what it found, a line each; above all else
  std::vector<std::string> intro = {};    ///< paragraphs
  /// How it was made: names and values, such as models, device, version, command.
  std::vector<std::pair<std::string, std::string>> facts = {};
  std::vector<Section> sections = {};
};

/// The page. It loads and runs nothing, is dark where the reader's other windows are, and prints
/// whole, without breaking figures. Figures and tables are numbered through. All text is escaped.
std::string to_html(const ReportPage& page);

}  // namespace coppice::study
