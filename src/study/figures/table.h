// One table, for terminals, spreadsheets, papers and web pages.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

namespace coppice::study {

enum class Align { left, right };

struct Column {
  std::string name = {};
  Align align = Align::right;
  /// Says what a row is of. In a narrow window such cells stand in a line of their own above the
  /// row's others; they come first.
  bool heads = false;
};

/// Rows may be shorter than the columns (empty cells) but not longer.
struct Table {
  std::vector<Column> columns = {};
  std::vector<std::vector<std::string>> rows = {};
};

/// Adds columns of numbers.
void add_columns(Table& table, const std::vector<std::string>& names);

/// The table without those of the named columns that are empty in every row.
Table without_empty(Table table, std::initializer_list<const char*> names);

// All throw Error(usage) where a row has more cells than there are columns.

/// Aligned for a terminal, with a rule below the names. Line breaks and control characters become
/// spaces.
std::string to_text(const Table& table);
/// Quoted as in RFC 4180, section 2; lines end with LF alone, as Unix tools want them.
std::string to_csv(const Table& table);
/// A tabular environment with the rules of package booktabs, all text escaped.
std::string to_latex(const Table& table);
/// A table element, all text escaped. Cells of right-aligned columns have class "number", those of
/// columns that head rows class "head" and, if they are numbers, their column's name as data-name.
/// A table with such columns has class "stacks" and the number of its others as --columns.
/// Intervals, "[1.2, 1.5]", are not broken.
std::string to_html(const Table& table);

}  // namespace coppice::study
