#include "study/report/rows.h"

#include <algorithm>
#include <tuple>

namespace coppice::study {
namespace {

/// What tells texts of one cell apart, whatever run wrote them.
auto text_of(const Result* result) { return std::tie(result->cell, result->prompt, result->round); }

/// Texts of plain decoding, by what tells them apart, the oldest run's first.
using PlainTexts =
    std::map<std::tuple<std::string, std::string, std::int32_t>, std::vector<const Result*>>;

const Result* plain_for(const Result& result, const std::string& plain_cell,
                        const PlainTexts& texts) {
  const auto found = texts.find({plain_cell, result.prompt, result.round});
  if (found == texts.end()) return nullptr;
  const auto own = std::ranges::find(found->second, result.run, &Result::run);
  return own == found->second.end() ? found->second.front() : *own;
}

}  // namespace

bool Row::has_text_twice() const {
  const auto same = [](const Result* a, const Result* b) { return text_of(a) == text_of(b); };
  return std::ranges::adjacent_find(results, same) != results.end();
}

std::map<std::string, Row> rows_by_key(const Results& results) {
  std::map<std::string, Row> rows;
  std::map<std::string, Row*> row_of;
  std::map<std::string, std::string> plain_cell_of;
  for (const Cell& cell : results.plan().cells) {
    Row& row = rows[cell.row_key()];
    if (row.cell == nullptr) row.cell = &cell;
    row_of[cell.key()] = &row;
    plain_cell_of[cell.key()] = plain_of(cell).key();
  }
  for (const Result& result : results.results()) {
    row_of.at(result.cell)->results.push_back(&result);
  }
  // Sums of floating-point numbers depend on their order, the file's order on who was faster.
  for (auto& [key, row] : rows) std::ranges::sort(row.results, {}, in_order);
  PlainTexts texts;
  for (const auto& [key, row] : rows) {
    if (!row.cell->plain()) continue;
    for (const Result* one : row.results) {
      texts[{one->cell, one->prompt, one->round}].push_back(one);
    }
  }
  for (auto& [key, row] : rows) {
    for (const Result* one : row.results) {
      row.plains.push_back(plain_for(*one, plain_cell_of.at(one->cell), texts));
    }
  }
  return rows;
}

std::vector<Row> by_run(const Row& row) {
  std::map<std::string, Row> parts;  // runs' names begin with their dates
  for (std::size_t i = 0; i < row.results.size(); ++i) {
    Row& part = parts[row.results[i]->run];
    part.cell = row.cell;
    part.results.push_back(row.results[i]);
    part.plains.push_back(row.plains[i]);
  }
  std::vector<Row> rows;
  for (auto& [run, part] : parts) rows.push_back(std::move(part));
  return rows;
}

RowColumns columns_of(const Row& row, std::span<const std::string> prompts) {
  RowColumns all;
  for (Values* column :
       {&all.kept, &all.steps, &all.decoded, &all.decode_seconds, &all.plain_decoded,
        &all.plain_seconds, &all.examined, &all.accepted, &all.drafted, &all.tokens, &all.seconds,
        &all.paces, &all.texts, &all.plain_tokens, &all.plain_with_prefill, &all.plain_paces}) {
    column->assign(prompts.size(), 0.0);
  }
  const auto seconds_of = [](const Result* one) {
    return one->seconds.decode() + one->seconds.prefill;
  };
  for (std::size_t i = 0; i < row.results.size(); ++i) {
    const Result *result = row.results[i], *plain = row.plains[i];
    const auto p =
        static_cast<std::size_t>(std::ranges::find(prompts, result->prompt) - prompts.begin());
    if (p == prompts.size()) continue;
    all.kept[p] += static_cast<double>(result->kept_tokens());
    all.steps[p] += static_cast<double>(result->steps());
    all.decoded[p] += static_cast<double>(result->decoded());
    all.decode_seconds[p] += result->seconds.decode();
    all.examined[p] += static_cast<double>(result->nodes.total().examined);
    all.accepted[p] += static_cast<double>(result->accepted_drafts());
    all.drafted[p] += static_cast<double>(result->drafted());
    const auto tokens = static_cast<double>(result->tokens());
    all.tokens[p] += tokens;
    all.seconds[p] += seconds_of(result);
    all.paces[p] += tokens / seconds_of(result);
    all.texts[p] += 1.0;
    if (plain == nullptr) continue;
    const auto plain_tokens = static_cast<double>(plain->tokens());
    all.plain_decoded[p] += static_cast<double>(plain->decoded());
    all.plain_seconds[p] += plain->seconds.decode();
    all.plain_tokens[p] += plain_tokens;
    all.plain_with_prefill[p] += seconds_of(plain);
    all.plain_paces[p] += plain_tokens / seconds_of(plain);
  }
  return all;
}

}  // namespace coppice::study
