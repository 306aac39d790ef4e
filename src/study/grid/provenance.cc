#include "study/grid/provenance.h"

#include <sys/utsname.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "engine/engine_impl.h"
#include "kernels/cpu/instruction_set.h"

namespace coppice::study {
namespace {

std::string now_in_utc() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  std::array<char, 32> text{};
  gmtime_r(&now, &parts);
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

/// As the kernel names it; the machine's kind if it names none.
std::string cpu_model() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (!line.starts_with("model name")) continue;
    const auto value = line.find_first_not_of(" \t:", line.find(':'));
    if (value != line.npos) return line.substr(value);
  }
  utsname machine{};
  return uname(&machine) == 0 ? machine.machine : "unknown";
}

}  // namespace

Provenance provenance_of(Engine& engine, const std::string& command, const std::string& pair,
                         int jobs) {
  const Device& device = *engine.impl().device;
  Provenance run;
  run.date = now_in_utc();
  run.version = version();
  run.build = COPPICE_BUILD;
  run.command = command;
  run.pair = pair;
  run.device = device.name();
  run.dtype = name_of(device.compute_dtype());
  run.kv_dtype = name_of(device.kv_dtype());
  if (!device.shares_host_memory()) run.card = device.description();
  run.cpu = cpu_model();
  run.instruction_set = cpu::name_of(cpu::instruction_set());
  run.threads = device.threads();
  run.jobs = jobs;
  return run;
}

nlohmann::ordered_json to_json(const Provenance& run) {
  return {{"date", run.date},
          {"version", run.version},
          {"build", run.build},
          {"command", run.command},
          {"pair", run.pair},
          {"device", run.device},
          {"dtype", run.dtype},
          {"kv_dtype", run.kv_dtype},
          {"card", run.card},
          {"cpu", run.cpu},
          {"instruction_set", run.instruction_set},
          {"threads", run.threads},
          {"jobs", run.jobs}};
}

Provenance provenance_from(const nlohmann::json& json) {
  Provenance run;
  const auto text = [&](const char* name) { return json.at(name).get<std::string>(); };
  run.date = text("date");
  run.version = text("version");
  run.build = text("build");
  run.command = text("command");
  run.pair = text("pair");
  run.device = text("device");
  run.dtype = text("dtype");
  run.kv_dtype = text("kv_dtype");
  run.card = text("card");
  run.cpu = text("cpu");
  run.instruction_set = text("instruction_set");
  run.threads = json.at("threads").get<int>();
  run.jobs = json.at("jobs").get<int>();
  return run;
}

Facts facts_of(const std::vector<Provenance>& runs) {
  Facts facts;
  const auto add = [&](const char* name, const std::function<std::string(const Provenance&)>& of) {
    std::vector<std::string> values;
    std::string all;
    for (const Provenance& run : runs) {
      const std::string value = of(run);
      if (value.empty() || std::find(values.begin(), values.end(), value) != values.end()) continue;
      values.push_back(value);
      all += (all.empty() ? "" : "; ") + value;
    }
    if (!all.empty()) facts.emplace_back(name, all);
  };
  add("device", [](const Provenance& run) {
    return cat(run.device, ", ", run.dtype, ", KV ", run.kv_dtype, run.card.empty() ? "" : ", ",
               run.card);
  });
  add("CPU", [](const Provenance& run) {
    return cat(run.cpu, ", ", run.instruction_set, ", ", run.threads,
               run.threads == 1 ? " thread" : " threads");
  });
  add("jobs", [](const Provenance& run) {
    return run.jobs == 1 ? std::string()
                         : cat(run.jobs, " at once; times compare within this study only");
  });
  add("date", [](const Provenance& run) { return run.date; });
  add("coppice", [](const Provenance& run) { return cat(run.version, ", ", run.build); });
  add("command", [](const Provenance& run) { return run.command; });
  return facts;
}

}  // namespace coppice::study
