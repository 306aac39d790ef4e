// The commands behind `coppice COMMAND`.
#pragma once

#include <string>
#include <vector>

namespace coppice::cli {

/// Each takes the words after its name and returns the exit code; errors are thrown.
int advise(const std::vector<std::string>& arguments);
int audit(const std::vector<std::string>& arguments);
int chat(const std::vector<std::string>& arguments);
int completion(const std::vector<std::string>& arguments);
int generate(const std::vector<std::string>& arguments);
int info(const std::vector<std::string>& arguments);
int man(const std::vector<std::string>& arguments);
int plan(const std::vector<std::string>& arguments);
int quantise(const std::vector<std::string>& arguments);
int rank(const std::vector<std::string>& arguments);
int record(const std::vector<std::string>& arguments);
int replay(const std::vector<std::string>& arguments);
int serve(const std::vector<std::string>& arguments);
int study(const std::vector<std::string>& arguments);
int tree(const std::vector<std::string>& arguments);
int workload(const std::vector<std::string>& arguments);
/// What it replays: its KIND.
std::vector<std::string> workload_kinds();

}  // namespace coppice::cli
