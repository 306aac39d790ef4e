#include "reference/exact_law.h"

#include <sstream>

#include "kernels/logits.h"

namespace coppice::testing {
namespace {

// To multiples of 2^-24, which floats hold exactly up to 1.
void round_to_exact_sum(std::vector<float>& row) {
  double sum = 0.0;
  for (const float prob : row) sum += static_cast<double>(prob);
  if (sum == 1.0) return;
  constexpr double unit = 0x1p-24;
  double rest = 1.0;
  for (float& prob : row) {
    prob = static_cast<float>(std::round(static_cast<double>(prob) / unit) * unit);
    rest -= static_cast<double>(prob);
  }
  float& largest = *std::max_element(row.begin(), row.end());
  largest = static_cast<float>(static_cast<double>(largest) + rest);
}

// One row at first, another one later.
PathRows two_rows(const std::vector<float>& first, const std::vector<float>& later) {
  return PathRows(first.size(),
                  [=](const TokenPath& path) { return path.empty() ? first : later; });
}

PathRows same_row(const std::vector<float>& row) { return two_rows(row, row); }

}  // namespace

PathRows rows_of(const TabularModel& model, const SamplingParams& params, Rows rows) {
  const auto vocab = static_cast<std::size_t>(model.vocab);
  return PathRows(vocab, [model, params, rows, vocab](const TokenPath& path) {
    TokenPath text{0, 0};
    text.insert(text.end(), path.begin(), path.end());
    TokenCounts seen(model.vocab);
    for (const TokenId token : text) seen.add(token);
    const auto last = static_cast<std::size_t>(text.back());
    const auto previous = static_cast<std::size_t>(text[text.size() - 2]);
    LogitsScratch scratch;
    std::vector<float> row(vocab);
    process_logits(std::span(model.logits).subspan((previous * vocab + last) * vocab, vocab),
                   params, &seen, scratch, row);
    if (rows == Rows::exact) round_to_exact_sum(row);
    return row;
  });
}

std::vector<ExactPair> exact_pairs(const SamplingParams& target_params,
                                   const SamplingParams& draft_params, Rows rows) {
  std::vector<ExactPair> pairs;
  for (const ModelPair& pair : model_pairs()) {
    if (pair.target.vocab > 5) continue;
    pairs.push_back({pair.name, rows_of(pair.target, target_params, rows),
                     rows_of(pair.draft, draft_params, rows), true});
  }
  constexpr float tail = 0x1p-40f, small = 0x1p-20f;
  const std::vector<float> tailed{1.0f - small, small - tail, tail, 0.0f};
  const std::vector<float> even{0.25f, 0.25f, 0.25f, 0.25f};
  const std::vector<float> turned{tail, 0.0f, small - tail, 1.0f - small};
  pairs.push_back({"tails in the target", same_row(tailed), same_row(even)});
  pairs.push_back({"tails in the draft", same_row(even), same_row(tailed)});
  pairs.push_back({"tails apart", same_row(tailed), same_row(turned)});
  // All values tie, so that an order of ties that looks at tokens is seen.
  pairs.push_back(
      {"two even tokens", two_rows({0.75f, 0.25f}, {0.25f, 0.75f}), same_row({0.5f, 0.5f})});
  // Which token the first node's child holds decides whether the first node gets a sibling.
  pairs.push_back({"a child decides", two_rows({0.125f, 0.5f, 0.375f}, {0.25f, 0.5f, 0.25f}),
                   two_rows({0.625f, 0.375f, 0.0f}, {0.5f, 0.3125f, 0.1875f})});
  return pairs;
}

std::string LawError::text() const {
  std::ostringstream out;
  out << "off by " << largest << " at (";
  for (std::size_t i = 0; i < at.size(); ++i) out << (i > 0 ? " " : "") << at[i];
  out << "), " << paths << " paths, largest tree " << largest_tree << ", accepted length "
      << accepted_length << (address_shared ? ", an address shared" : "");
  return out.str();
}

LawError compare_exactly(const std::map<TokenPath, double>& written, PathRows& target) {
  // What begins with a text and is longer.
  std::map<TokenPath, double> longer;
  for (const auto& [text, probability] : written) {
    TokenPath prefix = text;
    while (!prefix.empty()) {
      prefix.pop_back();
      longer[prefix] += probability;
    }
  }
  LawError error;
  const auto look = [&](const TokenPath& text, double found, double expected) {
    const double difference = std::abs(found - expected);
    if (!(difference <= error.largest)) {
      error.largest = difference;
      error.at = text;
    }
  };
  // `finished`: of what has ended by `text`, the share that the target finishes to `text`. Below
  // the longest texts both laws grow by the same factors.
  const std::function<void(const TokenPath&, double, double)> walk = [&](const TokenPath& text,
                                                                         double finished,
                                                                         double expected) {
    if (!longer.contains(text)) return;
    const std::vector<float> row = target.after(text);
    double sum = 0.0;
    for (const float prob : row) sum += static_cast<double>(prob);
    TokenPath next = text;
    next.push_back(0);
    for (std::size_t token = 0; token < row.size(); ++token) {
      next.back() = static_cast<TokenId>(token);
      const double prob = static_cast<double>(row[token]) / sum;
      const auto ended = written.find(next);
      const auto beyond = longer.find(next);
      const double finished_here = finished * prob + (ended == written.end() ? 0.0 : ended->second);
      look(next, finished_here + (beyond == longer.end() ? 0.0 : beyond->second), expected * prob);
      if (beyond == longer.end()) {
        error.variation += 0.5 * std::abs(finished_here - expected * prob);
      }
      walk(next, finished_here, expected * prob);
    }
  };
  walk({}, 0.0, 1.0);
  return error;
}

}  // namespace coppice::testing
