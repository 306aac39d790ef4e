#include "study/figures/table.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <string_view>
#include <system_error>

#include "base/error.h"
#include "base/utf8.h"
#include "study/figures/text.h"

namespace coppice::study {
namespace {

// Kinds come from files of prompts. What would break the line is a blank.
std::string on_one_line(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c == '\n' || c == '\r' || c == '\t') c = ' ';
  }
  return printable(out);
}

// Code points: one column of a terminal each, but for East Asian ones.
std::size_t columns_wide(std::string_view text) {
  std::size_t count = 0;
  while (!text.empty()) {
    text.remove_prefix(static_cast<std::size_t>(std::max(utf8_sequence(text), 1)));
    ++count;
  }
  return count;
}

std::string escape_latex(std::string_view text) {
  std::string out;
  const std::string line = on_one_line(text);
  for (std::size_t i = 0; i < line.size(); ++i) {
    const std::string c(1, line[i]);
    const bool begins = i == 0 || line[i - 1] == ' ' || line[i - 1] == '[';
    const bool before_digit = i + 1 < line.size() && line[i + 1] >= '0' && line[i + 1] <= '9';
    if (std::string_view("&%$#_{}").find(c) != std::string_view::npos) {
      out += "\\" + c;
    } else if (c == "\\" || c == "~" || c == "^") {
      out += c == "\\"  ? "\\textbackslash{}"
             : c == "~" ? "\\textasciitilde{}"
                        : "\\textasciicircum{}";
    } else if (c == "<" || c == ">" || c == "|" || (c == "-" && begins && before_digit)) {
      out += "$" + c + "$";
    } else {
      // Behind the end of a row these would be an option of that.
      out += i == 0 && (c == "[" || c == "*") ? "{" + c + "}" : c;
    }
  }
  return out;
}

bool is_number(std::string_view text) {
  double number = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc{} && end == text.data() + text.size();
}

// A spreadsheet runs what begins like a formula, and names come from files: it is made a text. So
// are control characters, which some take for the end of a cell.
std::string defused(std::string_view text) {
  constexpr std::string_view begins_formula = "=+-@";
  const bool formula = !text.empty() && begins_formula.find(text[0]) != text.npos &&
                       !is_number(text[0] == '+' ? text.substr(1) : text);
  std::string out = formula ? "'" : "";
  for (const char c : text) {
    const bool control = static_cast<unsigned char>(c) < 0x20 && c != '\n';
    out += control || c == 0x7f ? ' ' : c;
  }
  return out;
}

std::string quote_csv(std::string_view cell) {
  const std::string text = defused(cell);
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return text;
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + '"';
}

using Lines = std::vector<std::vector<std::string>>;

// A header line and every row, each cell made by `made`. Throws Error(usage) as table.h says.
template <typename Make>
Lines lines_of(const Table& table, const Make& made) {
  Lines lines(1);
  for (const Column& column : table.columns) lines[0].push_back(made(column.name));
  for (const auto& row : table.rows) {
    if (row.size() > table.columns.size()) {
      throw_usage(cat("table: row ", lines.size(), " has ", row.size(), " cells for ",
                      table.columns.size(), " columns; name every column"));
    }
    std::vector<std::string>& line = lines.emplace_back();
    for (const std::string& cell : row) line.push_back(made(cell));
    line.resize(table.columns.size());
  }
  return lines;
}

/// What stands around the cells of a line, which are padded to columns; below the names, the rule.
struct Layout {
  std::string (*escaped)(std::string_view text);
  const char *between, *end;
  std::string (*rule)(const std::vector<std::size_t>& widths);
};

std::string laid_out(const Table& table, const Layout& layout) {
  const Lines lines = lines_of(table, layout.escaped);
  std::vector<std::size_t> widths(table.columns.size(), 0);
  for (const auto& line : lines) {
    for (std::size_t c = 0; c < line.size(); ++c) {
      widths[c] = std::max(widths[c], columns_wide(line[c]));
    }
  }
  std::string out;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    for (std::size_t c = 0; c < widths.size(); ++c) {
      const std::string padding(widths[c] - columns_wide(lines[i][c]), ' ');
      const bool right = table.columns[c].align == Align::right;
      out +=
          (c > 0 ? layout.between : "") + (right ? padding + lines[i][c] : lines[i][c] + padding);
    }
    out += layout.end;
    out.erase(out.find_last_not_of(' ') + 1);
    out += "\n" + (i == 0 ? layout.rule(widths) : "");
  }
  return out;
}

/// ` class="head number"`, or nothing.
std::string classes_of(const Column& column) {
  const bool number = column.align == Align::right;
  if (!number && !column.heads) return {};
  return cat(" class=\"", column.heads ? "head" : "", number && column.heads ? " " : "",
             number ? "number" : "", "\"");
}

/// Escapes a cell; an interval in it, with what stands behind, is one span.
std::string unbroken_intervals(std::string_view text) {
  const auto open = text.find('[');
  if (open == text.npos || text.find(']', open) == text.npos) return escape_markup(text);
  return cat(escape_markup(text.substr(0, open)), "<span>", escape_markup(text.substr(open)),
             "</span>");
}

}  // namespace

void add_columns(Table& table, const std::vector<std::string>& names) {
  for (const std::string& name : names) table.columns.push_back({name});
}

Table without_empty(Table table, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const auto column = std::ranges::find(table.columns, name, &Column::name);
    const auto place = column - table.columns.begin();
    const auto is_empty = [&](const auto& row) { return row[place].empty(); };
    if (column == table.columns.end() || !std::ranges::all_of(table.rows, is_empty)) continue;
    table.columns.erase(column);
    for (auto& row : table.rows) row.erase(row.begin() + place);
  }
  return table;
}

std::string to_text(const Table& table) {
  const auto rule = [](const std::vector<std::size_t>& widths) {
    std::string line;
    for (const std::size_t width : widths) {
      line += (line.empty() ? "" : "  ") + std::string(width, '-');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    return line + "\n";
  };
  return laid_out(table, {on_one_line, "  ", "", rule});
}

std::string to_csv(const Table& table) {
  std::string out;
  for (const auto& line : lines_of(table, quote_csv)) {
    for (std::size_t c = 0; c < line.size(); ++c) out += (c > 0 ? "," : "") + line[c];
    out += "\n";
  }
  return out;
}

std::string to_latex(const Table& table) {
  std::string out = "\\begin{tabular}{@{}";
  for (const Column& column : table.columns) out += column.align == Align::right ? 'r' : 'l';
  const auto rule = [](const std::vector<std::size_t>&) { return std::string("\\midrule\n"); };
  return out + "@{}}\n\\toprule\n" + laid_out(table, {escape_latex, " & ", " \\\\", rule}) +
         "\\bottomrule\n\\end{tabular}\n";
}

std::string to_html(const Table& table) {
  const auto lines = lines_of(table, unbroken_intervals);
  const auto heads = std::ranges::count(table.columns, true, &Column::heads);
  const auto append_row = [&](std::string& out, const std::vector<std::string>& line,
                              const std::string& element, const std::string& attributes) {
    out += "<tr>";
    for (std::size_t c = 0; c < line.size(); ++c) {
      const Column& column = table.columns[c];
      const bool named = element == "td" && column.heads && column.align == Align::right;
      out += cat("<", element, attributes, classes_of(column),
                 named ? cat(" data-name=\"", escape_markup(column.name), "\"") : "", ">", line[c],
                 "</", element, ">");
    }
    out += "</tr>\n";
  };
  std::string out = "<table";
  if (heads > 0) {
    out += cat(" class=\"stacks\" style=\"--columns: ",
               table.columns.size() - static_cast<std::size_t>(heads), "\"");
  }
  out += ">\n<thead>\n";
  append_row(out, lines[0], "th", " scope=\"col\"");
  out += "</thead>\n<tbody>\n";
  for (std::size_t i = 1; i < lines.size(); ++i) append_row(out, lines[i], "td", "");
  return out + "</tbody>\n</table>\n";
}

}  // namespace coppice::study
