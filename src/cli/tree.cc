// Draws one judged token tree.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/options.h"
#include "cli/terminal.h"

namespace coppice::cli {
namespace {

std::string token_text(const Engine& engine, TokenId token) {
  if (!engine.has_tokenizer()) return std::to_string(token);
  return engine.detokenize(std::span<const TokenId>(&token, 1));
}

std::vector<std::vector<std::size_t>> children_of(const JudgedTree& tree) {
  std::vector<std::vector<std::size_t>> children(tree.nodes.size());
  for (std::size_t n = 1; n < tree.nodes.size(); ++n) {
    children[static_cast<std::size_t>(tree.nodes[n].parent)].push_back(n);
  }
  return children;
}

std::string as_text(const Engine& engine, const JudgedTree& tree, bool colour) {
  const auto children = children_of(tree);
  std::string out = "  draft   value  target\n";
  std::size_t accepted = 0;
  // Depth-first, with the line work that each level still needs.
  const auto draw = [&](const auto& self, std::size_t node, const std::string& lines) -> void {
    const TreeNode& n = tree.nodes[node];
    const bool last = node == 0 || children[static_cast<std::size_t>(n.parent)].back() == node;
    char numbers[64];
    if (node == 0) {
      std::snprintf(numbers, sizeof numbers, "%7s %7s %7s  ", "", "", "");
    } else {
      std::snprintf(numbers, sizeof numbers, "%7.4f %7.4f %7.4f  ", n.draft_prob, n.value,
                    n.target_prob);
      accepted += n.accepted ? 1 : 0;
    }
    const std::string branch = node == 0 ? "" : (last ? "└─ " : "├─ ");
    std::string text = "'" + visible(token_text(engine, n.token)) + "'";
    if (n.accepted && node != 0) text = colour ? "\033[1;32m" + text + "\033[0m" : text + " *";
    out += numbers + lines + branch + text + "\n";
    const std::string below = node == 0 ? "" : lines + (last ? "   " : "│  ");
    for (const std::size_t child : children[node]) self(self, child, below);
  };
  draw(draw, 0, "");
  char summary[160];
  std::snprintf(
      summary, sizeof summary,
      "%zu draft tokens in %lld draft pass%s; %zu accepted%s, then '%s' from the target\n",
      tree.nodes.size() - 1, static_cast<long long>(tree.draft_passes),
      tree.draft_passes == 1 ? "" : "es", accepted, colour ? "" : " (*)",
      visible(token_text(engine, tree.bonus)).c_str());
  return out + summary;
}

std::string as_dot(const Engine& engine, const JudgedTree& tree) {
  std::string out = "digraph tree {\n  node [shape=box, fontname=\"monospace\"];\n";
  for (std::size_t i = 0; i < tree.nodes.size(); ++i) {
    const TreeNode& n = tree.nodes[i];
    std::string label;
    for (const char c : visible(token_text(engine, n.token))) {
      if (c == '"' || c == '\\') label += '\\';
      label += c;
    }
    char numbers[80] = "";
    if (i > 0) {
      std::snprintf(numbers, sizeof numbers, "\\nD %.4f  v %.4f  T %.4f", n.draft_prob, n.value,
                    n.target_prob);
    }
    out += cat("  n", i, " [label=\"", label, numbers, "\"",
               n.accepted ? ", style=filled, fillcolor=palegreen" : "", "];\n");
    if (i > 0) out += cat("  n", n.parent, " -> n", i, n.accepted ? " [penwidth=2]" : "", ";\n");
  }
  return out + "}\n";
}

std::string as_json(const Engine& engine, const JudgedTree& tree, std::uint64_t seed) {
  using Json = nlohmann::ordered_json;
  Json nodes = Json::array();
  for (const TreeNode& n : tree.nodes) {
    nodes.push_back({{"token", n.token},
                     {"text", token_text(engine, n.token)},
                     {"parent", n.parent},
                     {"depth", n.depth},
                     {"rank", n.rank},
                     {"draft_prob", n.draft_prob},
                     {"path_prob", n.path_prob},
                     {"value", n.value},
                     {"target_prob", n.target_prob},
                     {"accepted", n.accepted}});
  }
  return Json{{"nodes", nodes},
              {"bonus", tree.bonus},
              {"draft_passes", tree.draft_passes},
              {"seed", seed}}
             .dump() +
         "\n";
}

}  // namespace

int tree(const std::vector<std::string>& arguments) {
  po::options_description output("Output");
  output.add_options()("format", po::value<std::string>()->default_value("text")->value_name("F"),
                       "text, dot (for graphviz) or json");
  po::options_description all;
  all.add(output).add(prompt_options()).add(sampling_options()).add(drafting_options());
  all.add(model_options());
  po::variables_map values;
  if (!parse(arguments, all,
             "coppice tree: grow and judge one token tree after a prompt, and draw it\n\n"
             "Columns: the draft's probability of the token, the estimated acceptance of its\n"
             "position (DySpec), the target's probability. The accepted path is coloured\n"
             "on a terminal, else marked by a star.\n",
             values)) {
    return 0;
  }
  const std::string format = values["format"].as<std::string>();
  if (format != "text" && format != "dot" && format != "json") {
    throw_usage(cat("--format ", quote(format), " is unknown; use text, dot or json"));
  }
  GenerateOptions request = generate_options(values);
  const Prompt prompt = read_prompt(values);
  request.validate();
  const EngineOptions engine_request = engine_options(values, request);
  if (request.policy == Policy::none) {
    throw_usage("--policy none grows no tree; use another policy");
  }
  if (engine_request.draft.empty()) throw_usage("tree needs a draft model; give --draft DIR");
  Engine engine = Engine::load(engine_request);
  const auto tokens = prompt.ids ? prompt.tokens : engine.tokenize(prompt.text, request.add_bos);
  const JudgedTree judged = engine.judge_tree(tokens, request);
  if (format == "dot") {
    write_out(as_dot(engine, judged));
  } else if (format == "json") {
    write_out(as_json(engine, judged, request.seed));
  } else {
    write_out(as_text(engine, judged, stdout_takes_colour()));
    if (values.count("seed") == 0 && request.temperature > 0.0) {
      write_out(cat("seed ", request.seed, "\n"));
    }
  }
  return 0;
}

}  // namespace coppice::cli
