#include "study/figures/report_page.h"

#include <cstddef>
#include <string_view>

#include "study/figures/text.h"

namespace coppice::study {
namespace {

constexpr std::string_view style_sheet = R"(
:root { color-scheme: light dark; --ink: #1b1b1b; --soft: #5a5a5a; --paper: #fff; --rule: #d4d4d4;
        --band: #f6f6f6; --link: #0b5394; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e6e6; --soft: #a8a8a8; --paper: #16181b; --rule: #3b3f45; --band: #1e2125;
          --link: #8ab8ee; }
}
body { margin: 0 auto; padding: 2rem 1.25rem 4rem; max-width: 60rem; color: var(--ink);
       background: var(--paper); font: 1rem/1.55 system-ui, "Segoe UI", Helvetica, Arial, sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 1rem; }
h2 { font-size: 1.25rem; margin: 2.5rem 0 .75rem; padding-bottom: .25rem;
     border-bottom: 1px solid var(--rule); }
h1, h2, p, dd, figcaption { overflow-wrap: anywhere; }
p { margin: 0 0 .9rem; max-width: 46rem; }
a { color: var(--link); }
nav ol { margin: 1rem 0; padding-left: 1.5rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1.25rem; margin: 1.25rem 0;
     font-size: .9rem; }
dt { color: var(--soft); }
dd { margin: 0; }
figure { margin: 1.5rem 0 2rem; }
.picture { background: #fff; border: 1px solid var(--rule); border-radius: 4px; padding: .75rem;
           width: fit-content; max-width: 100%; box-sizing: border-box; }
.picture > svg { display: block; max-width: 100%; height: auto; }
figcaption { font-size: .9rem; color: var(--soft); max-width: 46rem; margin-top: .5rem; }
figcaption b { color: var(--ink); }
figure.tabular > figcaption { margin: 0 0 .5rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; }
thead { border-top: 1.5px solid var(--ink); border-bottom: 1px solid var(--ink); }
tbody { border-bottom: 1.5px solid var(--ink); }
th, td { padding: .25rem .65rem; text-align: left; vertical-align: top; }
th { font-weight: 600; vertical-align: bottom; }
td { white-space: nowrap; }
.number { text-align: right; }
tbody tr:nth-child(even) { background: var(--band); }
@media print {
  :root { --ink: #000; --soft: #333; --paper: #fff; --rule: #bbb; --band: #fff; --link: #000; }
  body { max-width: none; padding: 0; font-size: 10pt; }
  nav { display: none; }
  h2 { break-after: avoid; }
  figure:not(.tabular), tr { break-inside: avoid; }
  thead { display: table-header-group; }
  .picture { border: none; padding: 0; }
  .scroll { overflow: visible; }
  td { white-space: normal; }
}
)";

std::string paragraph(const std::string& text) { return "<p>" + escape_markup(text) + "</p>\n"; }

// Figures and tables are numbered in the order in which they are written.
class Writer {
 public:
  std::string write(const ReportPage& page);

 private:
  void write_block(const Paragraph& block) { out_ += paragraph(block.text); }
  void write_block(const Figure& block) {
    out_ += "<figure>\n<div class=\"picture\">" + block.svg + "</div>\n" +
            caption("Figure", ++figures_, block.caption) + "</figure>\n";
  }
  void write_block(const CaptionedTable& block) {
    out_ += "<figure class=\"tabular\">\n" + caption("Table", ++tables_, block.caption) +
            "<div class=\"scroll\">" + to_html(block.table) + "</div>\n</figure>\n";
  }
  static std::string caption(const char* kind, int number, const std::string& text) {
    return "<figcaption><b>" + std::string(kind) + " " + std::to_string(number) + ".</b> " +
           escape_markup(text) + "</figcaption>\n";
  }
  void write_contents(const std::vector<Section>& sections);

  std::string out_;
  int figures_ = 0;
  int tables_ = 0;
};

void Writer::write_contents(const std::vector<Section>& sections) {
  if (sections.size() < 3) return;
  out_ += "<nav aria-label=\"Contents\">\n<ol>\n";
  for (std::size_t i = 0; i < sections.size(); ++i) {
    out_ += "<li><a href=\"#section-" + std::to_string(i + 1) + "\">" +
            escape_markup(sections[i].heading) + "</a></li>\n";
  }
  out_ += "</ol>\n</nav>\n";
}

std::string Writer::write(const ReportPage& page) {
  const std::string title = escape_markup(page.title);
  // The policy lets a browser enforce that nothing is loaded and no script runs.
  out_ =
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
      "<meta http-equiv=\"Content-Security-Policy\" "
      "content=\"default-src 'none'; style-src 'unsafe-inline'\"/>\n"
      "<title>" +
      title + "</title>\n<style>" + std::string(style_sheet) +
      "</style>\n</head>\n<body>\n<main>\n<h1>" + title + "</h1>\n";
  for (const std::string& text : page.intro) out_ += paragraph(text);
  if (!page.facts.empty()) {
    out_ += "<dl>\n";
    for (const auto& [name, value] : page.facts) {
      out_ += "<dt>" + escape_markup(name) + "</dt><dd>" + escape_markup(value) + "</dd>\n";
    }
    out_ += "</dl>\n";
  }
  write_contents(page.sections);
  for (std::size_t i = 0; i < page.sections.size(); ++i) {
    out_ += "<section id=\"section-" + std::to_string(i + 1) + "\">\n<h2>" +
            escape_markup(page.sections[i].heading) + "</h2>\n";
    for (const Block& block : page.sections[i].blocks) {
      std::visit([&](const auto& content) { write_block(content); }, block);
    }
    out_ += "</section>\n";
  }
  return out_ + "</main>\n</body>\n</html>\n";
}

}  // namespace

std::string to_html(const ReportPage& page) { return Writer().write(page); }

}  // namespace coppice::study
