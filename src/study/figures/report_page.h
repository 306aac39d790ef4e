// One self-contained HTML page of text, figures and tables.
#pragma once

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "study/figures/table.h"

namespace coppice::study {

struct Paragraph {
  std::string text = {};
};

struct Figure {
  std::string svg = {};      ///< from one of the to_svg functions; put in as it is
  std::string caption = {};  ///< without its number
};

struct CaptionedTable {
  Table table;
  std::string caption = {};  ///< without its number
};

using Block = std::variant<Paragraph, Figure, CaptionedTable>;

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

/// The page. It loads nothing, needs no script, follows the reader's light or dark setting (figures
/// stay on white) and prints without breaking figures. Figures and tables are numbered through. All
/// text is escaped.
std::string to_html(const ReportPage& page);

}  // namespace coppice::study
