#include "settings.h"

#include <sstream>
#include <stdexcept>

namespace coppice::bench {
namespace {

Policy policy_named(const std::string& name) {
  if (name == "threshold") return Policy::dyspec_threshold;
  for (const Policy policy :
       {Policy::dyspec, Policy::chain, Policy::specinfer, Policy::sequoia, Policy::expand_rerank}) {
    if (name == name_of(policy)) return policy;
  }
  throw std::runtime_error("--settings: " + name +
                           " is no policy; use dyspec, threshold, chain, "
                           "specinfer, sequoia or expand-rerank");
}

}  // namespace

std::vector<Setting> plain_and(const std::string& words) {
  std::vector<Setting> settings = {{"plain", {}}};
  std::stringstream list(words);
  for (std::string word; std::getline(list, word, ',');) {
    std::stringstream parts(word);
    std::string policy, size;
    std::getline(parts, policy, ':');
    std::getline(parts, size, ':');
    Setting s{};
    s.drafting.policy = policy_named(policy);
    if (size.empty() || size.find_first_not_of("0123456789") != size.npos || size.size() > 4) {
      throw std::runtime_error("--settings: " + word + " has no size; use " + policy + ":0 or so");
    }
    s.drafting.tree_size = std::stoi(size);
    s.name = policy + " " + (s.tree_size() == 0 ? "auto" : size);
    for (std::string how; std::getline(parts, how, ':');) {
      if (how == "coupled") {
        s.acceptance = Acceptance::coupled;
      } else if (how == "auto") {
        s.acceptance = Acceptance::automatic;
      } else if (how == "plain") {
        s.drafting.plain_values = true;
      } else if (how == "lookup" || how == "alone") {
        s.drafting.looks_up = true;
        s.drafting.drafts = how == "lookup";
      } else {
        throw std::runtime_error("--settings: " + how +
                                 " is none of coupled, auto, plain, lookup and alone");
      }
      s.name += " " + how;
    }
    settings.push_back(s);
  }
  return settings;
}

GenerateOptions request_of(const Setting& setting, double temperature) {
  GenerateOptions request;
  request.speculation = speculation_of(setting.drafting);
  request.lookup = setting.drafting.looks_up ? Lookup::text : Lookup::none;
  request.use_draft = setting.drafting.drafts;
  request.acceptance = setting.acceptance;
  request.sampling.temperature = temperature;
  request.ignore_eos = true;
  return request;
}

}  // namespace coppice::bench
