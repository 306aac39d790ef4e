#include "cli/workload_output.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/generation_text.h"

namespace coppice::cli {
namespace {

using Json = nlohmann::ordered_json;

double per_iteration(std::int64_t sum, const workload::PlanReads& reads) {
  return static_cast<double>(sum) /
         static_cast<double>(std::max<std::int64_t>(1, reads.iterations));
}

double peak_bytes(const WorkloadFigures& f) {
  return static_cast<double>(f.replay->peak_kv) * f.kv_bytes;
}

std::string replay_text(const WorkloadFigures& f) {
  const workload::ReplayReport& r = *f.replay;
  const Seconds& s = r.seconds;
  std::string text = cat("\nengine (", f.device, " ", f.dtype, ", KV ", f.kv_dtype, ")",
                         f.sharing ? "" : ", every branch a copy",
                         r.finished ? "" : ", stopped before the end", "\n");
  text += table_line("trees", cat(r.trees, " of ", f.trees));
  text += table_line("passes", cat(r.passes));
  text += table_line("tokens", cat(r.generated));
  text += table_line("prompt tokens", cat(r.prompt_tokens, ", ", r.prompt_tokens - r.cached_tokens,
                                          " of them computed"));
  if (f.plan) text += table_line("branches", cat(r.forks, " begun, ", r.prunes, " pruned"));
  text += accepted_line(r.accepted);
  if (r.preemptions > 0) text += table_line("preemptions", cat(r.preemptions));
  if (f.plan) {
    text += table_line(
        "KV read", cat(r.read_by_tree, " tokens of former passes; text by text ", r.read_by_text));
  }
  text += table_line("peak KV tokens", cat(r.peak_kv, ", ", fixed(peak_bytes(f) / 1e6, 1), " MB"));
  text +=
      table_line("seconds", cat(fixed(s.total, 3), ": prefill ", fixed(s.prefill, 3), ", draft ",
                                fixed(s.draft, 3), ", verify ", fixed(s.verify, 3), ", sampling ",
                                fixed(s.sampling, 3), ", host ", fixed(s.other, 3)));
  return text;
}

Json counted(const workload::Reads& reads) {
  return {{"iterations", reads.iterations},
          {"tokens", reads.generated},
          {"kv_tokens_read_per_query", reads.per_query},
          {"kv_tokens_read_by_tree", reads.by_tree},
          {"peak_kv_tokens_by_tree", reads.peak_by_tree},
          {"peak_kv_tokens_per_query", reads.peak_per_query},
          {"most_branches", reads.most_branches}};
}

}  // namespace

std::string accepted_line(const workload::Accepted& accepted) {
  if (accepted.policy.empty() || accepted.policy == name_of(Plain{})) return {};
  return table_line("accepted length",
                    cat(accepted_of_texts(accepted.length()), ", by ", accepted.policy));
}

std::string workload_text(const WorkloadFigures& f) {
  const workload::Reads& r = f.reads;
  std::string text = f.file.empty() ? f.kind : cat(f.kind, " ", printable(f.file));
  text += cat(": ", f.trees, f.trees == 1 ? " tree" : " trees");
  if (f.left_out > 0) text += cat(" (", f.left_out, " incomplete left out)");
  text += "\ncounted\n";
  text += table_line("iterations", cat(r.iterations));
  text += table_line("tokens", cat(r.generated));
  text += table_line("KV per query", cat(r.per_query, " tokens read"));
  const double less = 100.0 - 100.0 * static_cast<double>(r.by_tree) /
                                  static_cast<double>(std::max<std::int64_t>(1, r.per_query));
  text += table_line("KV by tree", cat(r.by_tree, " tokens read, ", fixed(less, 1), "% less"));
  text += table_line("peak KV tokens",
                     cat(r.peak_by_tree, " as a tree, ", r.peak_per_query, " as copies"));
  if (f.plan) {
    text +=
        table_line("plan", cat(name_of(*f.plan), ": reads ", f.plan_reads.kv_tokens, " tokens in ",
                               fixed(per_iteration(f.plan_reads.groups, f.plan_reads), 1),
                               " groups an iteration, the longest of ",
                               fixed(per_iteration(f.plan_reads.longest, f.plan_reads), 0),
                               " tokens in the mean", f.sharing ? "" : ", every branch a copy"));
  }
  return f.replay ? text + replay_text(f) : text;
}

std::string workload_json(const WorkloadFigures& f) {
  const workload::Reads& r = f.reads;
  Json json = {{"kind", f.kind}};
  if (!f.file.empty()) json["file"] = f.file;
  json["trees"] = f.trees;
  json["incomplete"] = f.left_out;
  json["counted"] = counted(r);
  for (const auto& [name, reads] : f.of_trees) {
    Json one = {{"name", name}};
    one.update(counted(reads));
    json["counted_by_tree"].push_back(std::move(one));
  }
  if (f.plan) {
    json["plan"] = {{"name", name_of(*f.plan)},
                    {"kv_tokens_read", f.plan_reads.kv_tokens},
                    {"groups_per_iteration", per_iteration(f.plan_reads.groups, f.plan_reads)},
                    {"longest_group", per_iteration(f.plan_reads.longest, f.plan_reads)}};
  }
  if (f.replay) {
    const workload::ReplayReport& p = *f.replay;
    json["engine"] = {{"finished", p.finished},
                      {"sharing", f.sharing},
                      {"trees", p.trees},
                      {"passes", p.passes},
                      {"tokens", p.generated},
                      {"prompt_tokens", p.prompt_tokens},
                      {"cached_tokens", p.cached_tokens},
                      {"forks", p.forks},
                      {"prunes", p.prunes},
                      {"preemptions", p.preemptions},
                      {"peak_kv_tokens", p.peak_kv},
                      {"peak_kv_bytes", std::llround(peak_bytes(f))},
                      {"seconds",
                       {{"prefill", p.seconds.prefill},
                        {"draft", p.seconds.draft},
                        {"verify", p.seconds.verify},
                        {"sampling", p.seconds.sampling},
                        {"host", p.seconds.other},
                        {"total", p.seconds.total}}},
                      {"device", f.device},
                      {"dtype", f.dtype},
                      {"kv_dtype", f.kv_dtype}};
    if (f.plan) {
      json["engine"]["plan"] = name_of(f.engine_plan);
      json["engine"]["kv_tokens_read_by_text"] = p.read_by_text;
      json["engine"]["kv_tokens_read_by_tree"] = p.read_by_tree;
    }
    if (!p.accepted.policy.empty()) {  // else lengths were forced
      json["engine"]["policy"] = p.accepted.policy;
      json["engine"]["accepted_length"] = p.accepted.length();
    }
  }
  return json_line(json);
}

}  // namespace coppice::cli
