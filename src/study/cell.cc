#include "study/cell.h"

#include <array>
#include <charconv>

#include "base/error.h"
#include "study/policy_name.h"

namespace coppice::study {

std::string number_text(double number) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), number).ptr;
  return std::string(text.data(), end);
}

std::string Cell::name() const { return policy_name(policy, custom_policy, calibrate); }

std::string Cell::row_key() const {
  std::string key = name();
  if (!plain()) {
    if (widths.empty() && tree.empty()) {
      key += cat(" size=", tree_size > 0 ? std::to_string(tree_size) : "auto");
    }
    if (tree_depth > 0) key += cat(" depth=", tree_depth);
    if (beam_width > 0) key += cat(" beam=", beam_width);
    if (threshold > 0.0) key += cat(" threshold=", number_text(threshold));
    for (std::size_t i = 0; i < widths.size(); ++i) {
      key += cat(i == 0 ? " widths=" : ",", widths[i]);
    }
    if (!tree.empty()) key += cat(" tree=", quote(tree.string()));
  }
  key += cat(" temperature=", number_text(temperature));
  if (!plain() && draft_temperature >= 0.0) {
    key += cat(" draft-temperature=", number_text(draft_temperature));
  }
  return key + cat(" acceptance=", name_of(acceptance));
}

std::string Cell::key() const { return cat(row_key(), " seed=", seed); }

std::string Cell::label() const {
  if (plain()) return "plain";
  if (!widths.empty() || !tree.empty()) return name();
  return cat(name(), " ", tree_size > 0 ? std::to_string(tree_size) : "auto");
}

Cell plain_of(const Cell& cell) {
  Cell plain;
  plain.temperature = cell.temperature;
  plain.acceptance = cell.acceptance;
  plain.seed = cell.seed;
  return plain;
}

std::string Cell::plain_row_key() const { return plain_of(*this).row_key(); }

GenerateOptions Cell::request(const SharedOptions& shared) const {
  GenerateOptions options;
  options.max_new_tokens = shared.max_new_tokens;
  options.repetition_penalty = shared.repetition_penalty;
  options.top_k = shared.top_k;
  options.top_p = shared.top_p;
  options.min_p = shared.min_p;
  options.ignore_eos = shared.ignore_eos;
  options.temperature = temperature;
  options.draft_temperature = draft_temperature;
  options.acceptance = acceptance;
  options.seed = seed;
  options.policy = policy;
  options.custom_policy = custom_policy;
  options.calibrate = calibrate;
  options.tree_size = tree_size;
  options.tree_depth = tree_depth;
  options.beam_width = beam_width;
  options.threshold = threshold;
  options.widths = widths;
  options.tree = tree;
  return options;
}

}  // namespace coppice::study
