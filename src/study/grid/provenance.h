// When, where and by what program results were made.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "coppice.h"

namespace coppice::study {

/// One run of the program. A study that was continued or extended has several.
struct Provenance {
  std::string date;             ///< of its start, UTC: "2026-11-22T19:45:49Z"
  std::string version;          ///< coppice's
  std::string build;            ///< "Release, GNU 12.2.0"
  std::string command;          ///< as a shell takes it
  std::string pair;             ///< Cell::pair
  std::string device, dtype;    ///< as results name them: "cpu", "bf16"
  std::string kv_dtype;         ///< of keys and values
  std::string card;             ///< the GPU's product name; empty on a CPU
  std::string cpu;              ///< the CPU's model
  std::string instruction_set;  ///< in force on the CPU, capped or not: "avx512_bf16"
  int threads = 0;              ///< of each engine
  int jobs = 1;

  bool operator==(const Provenance&) const = default;
};

/// Of a run that begins now.
Provenance provenance_of(Engine& engine, const std::string& command, const std::string& pair,
                         int jobs);

nlohmann::ordered_json to_json(const Provenance& provenance);
/// Throws what nlohmann::json throws for anything that to_json() does not make.
Provenance provenance_from(const nlohmann::json& json);

/// Names and values, in order, for people.
using Facts = std::vector<std::pair<std::string, std::string>>;

/// What the runs have in common once, what differs with each of its values.
Facts facts_of(const std::vector<Provenance>& runs);

}  // namespace coppice::study
