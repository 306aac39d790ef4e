// Many texts side by side: what was measured, and its table.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace coppice::bench {

/// One way of writing a number of texts, once.
struct BatchRound {
  double prompt_seconds = 0.0;  ///< all prompts, with the first token of each
  double seconds = 0.0;         ///< the same with the new tokens
  double steps = 0, judged = 0, drafted = 0, shared = 0;  ///< sums over texts
  /// Likewise, of the steps that brought new tokens: draft passes and target passes.
  double draft_seconds = 0, verify_seconds = 0;
  /// What, in all steps, a GPU's host spent on recording passes and choosing products' code.
  double preparing_seconds = 0;
};

/// A row of the table: a setting with a number of texts.
struct BatchRow {
  std::string setting;
  std::int32_t prompt_tokens = 0, new_tokens = 0, texts = 0;
  std::vector<BatchRound> rounds;
  /// By round: new tokens per second over those of plain decoding of the same texts side by side,
  /// and over those of this setting's texts written in another way.
  std::vector<double> over_plain, over_other;

  /// New tokens per second of a round, prompts left out.
  double rate(std::size_t round) const;
};

/// The medians of rounds, in the columns of llama-batched-bench and some behind them. `other`: the
/// other way, as over_other's column names it.
std::string table_of(const std::vector<BatchRow>& rows, const std::string& other = "turns");
nlohmann::ordered_json json_of(const std::vector<BatchRow>& rows,
                               const std::string& other = "turns");

}  // namespace coppice::bench
