#include "study/grid/cell.h"

#include <array>
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "study/grid/policy_name.h"

namespace coppice::study {

std::string number_text(double number) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), number).ptr;
  return std::string(text.data(), end);
}

std::string Cell::name() const { return policy_name(policy, custom_policy, plain_values); }

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
  key += cat(" acceptance=", name_of(acceptance));
  return pair.empty() ? key : cat(key, " pair=", pair);
}

std::string Cell::key() const { return cat(row_key(), " seed=", seed); }

std::string Cell::size_text() const {
  if (plain()) return {};
  const std::int32_t size = tree_size > 0 ? tree_size : given_size;
  return size > 0 ? std::to_string(size) : "auto";
}

std::string Cell::label() const { return plain() ? "plain" : cat(name(), " ", size_text()); }

nlohmann::ordered_json to_json(const Cell& cell) {
  return {{"policy", cell.name()},
          {"tree_size", cell.tree_size},
          {"given_size", cell.given_size},
          {"temperature", cell.temperature},
          {"draft_temperature", cell.draft_temperature},
          {"acceptance", name_of(cell.acceptance)},
          {"seed", cell.seed},
          {"tree_depth", cell.tree_depth},
          {"beam_width", cell.beam_width},
          {"threshold", cell.threshold},
          {"widths", cell.widths},
          {"tree", cell.tree.string()},
          {"pair", cell.pair}};
}

Cell cell_from(const nlohmann::json& json) {
  Cell cell;
  const auto policy = json.at("policy").get<std::string>();
  const bool plain_values = policy.ends_with("-plain");
  cell.plain_values = plain_values;
  cell.policy = Policy::custom;  // registered names may be of another program
  for (const Policy one : named_policies()) {
    if (policy_name(one, "", plain_values) == policy) cell.policy = one;
  }
  if (cell.policy == Policy::custom) {
    cell.plain_values = false;
    cell.custom_policy = policy;
  }
  cell.tree_size = json.at("tree_size").get<std::int32_t>();
  cell.given_size = json.at("given_size").get<std::int32_t>();
  cell.temperature = json.at("temperature").get<double>();
  cell.draft_temperature = json.at("draft_temperature").get<double>();
  const auto acceptance = json.at("acceptance").get<std::string>();
  const bool coupled = acceptance == name_of(Acceptance::coupled);
  cell.acceptance = coupled ? Acceptance::coupled : Acceptance::rejection;
  cell.seed = json.at("seed").get<std::uint64_t>();
  cell.tree_depth = json.at("tree_depth").get<std::int32_t>();
  cell.beam_width = json.at("beam_width").get<std::int32_t>();
  cell.threshold = json.at("threshold").get<double>();
  cell.widths = json.at("widths").get<std::vector<std::int32_t>>();
  cell.tree = json.at("tree").get<std::string>();
  cell.pair = json.at("pair").get<std::string>();
  return cell;
}

Cell plain_of(const Cell& cell) {
  Cell plain;
  plain.temperature = cell.temperature;
  plain.acceptance = cell.acceptance;
  plain.seed = cell.seed;
  plain.pair = cell.pair;
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
  options.plain_values = plain_values;
  options.tree_size = tree_size;
  options.tree_depth = tree_depth;
  options.beam_width = beam_width;
  options.threshold = threshold;
  options.widths = widths;
  options.tree = tree;
  return options;
}

}  // namespace coppice::study
