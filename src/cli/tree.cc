// Draws one judged token tree.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/acceptance_vector.h"
#include "cli/command.h"
#include "cli/constraint_options.h"
#include "cli/option_values.h"
#include "cli/options.h"
#include "cli/prompt.h"
#include "cli/terminal.h"
#include "cli/token_options.h"
#include "engine/check_speculation.h"
#include "study/figures/text.h"

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

bool has_states(const JudgedTree& tree) { return tree.nodes.front().allowed >= 0; }

/// Small numbers for the states of a constraint, in the order of nodes.
std::vector<std::size_t> numbered_states(const JudgedTree& tree) {
  std::map<std::int32_t, std::size_t> numbers;
  std::vector<std::size_t> of_nodes;
  for (const TreeNode& node : tree.nodes) {
    of_nodes.push_back(numbers.try_emplace(node.state, numbers.size()).first->second);
  }
  return of_nodes;
}

/// How a token that no distribution proposed was found.
const char* found_by(const TreeNode& node) { return node.forced ? "forced" : "found"; }

/// rule: what the tree was judged by; empty at temperature 0, where all rules are one.
std::string as_text(const Engine& engine, const JudgedTree& tree, const std::string& rule,
                    bool colour) {
  const auto children = children_of(tree);
  const bool constrained = has_states(tree);
  const std::vector<std::size_t> states = numbered_states(tree);
  std::string out = cat("  draft   value  target", constrained ? "  state  may follow" : "", "\n");
  std::size_t accepted = 0;
  // Depth-first, with the line work that each level still needs.
  const auto draw = [&](const auto& self, std::size_t node, const std::string& lines) -> void {
    const TreeNode& n = tree.nodes[node];
    const bool last = node == 0 || children[static_cast<std::size_t>(n.parent)].back() == node;
    char numbers[64];
    if (node == 0) {
      std::snprintf(numbers, sizeof numbers, "%7s %7s %7s  ", "", "", "");
    } else {
      char drafted[16];
      if (n.looked_up) {
        std::snprintf(drafted, sizeof drafted, "%7s", found_by(n));
      } else {
        std::snprintf(drafted, sizeof drafted, "%7.4f", n.draft_prob);
      }
      std::snprintf(numbers, sizeof numbers, "%s %7.4f %7.4f  ", drafted, n.value, n.target_prob);
      accepted += n.accepted ? 1 : 0;
    }
    char of_state[40] = "";
    if (constrained) {
      std::snprintf(of_state, sizeof of_state, "%5zu  %10d  ", states[node], n.allowed);
    }
    const std::string branch = node == 0 ? "" : (last ? "└─ " : "├─ ");
    std::string text = "'" + printable(token_text(engine, n.token)) + "'";
    if (n.accepted && node != 0) text = colour ? "\033[1;32m" + text + "\033[0m" : text + " *";
    out += numbers + (of_state + lines) + branch + text + "\n";
    const std::string below = node == 0 ? "" : lines + (last ? "   " : "│  ");
    for (const std::size_t child : children[node]) self(self, child, below);
  };
  draw(draw, 0, "");
  char summary[160];
  std::snprintf(
      summary, sizeof summary,
      "%zu draft tokens in %lld draft pass%s; %zu accepted%s%s, then '%s' from the target\n",
      tree.nodes.size() - 1, static_cast<long long>(tree.draft_passes),
      tree.draft_passes == 1 ? "" : "es", accepted, colour ? "" : " (*)", rule.c_str(),
      printable(token_text(engine, tree.bonus)).c_str());
  return out + summary;
}

/// A token for graphviz's HTML-like labels: blanks can be seen, markup is escaped.
std::string dot_token(const Engine& engine, TokenId token) {
  std::string shown;
  for (const char c : printable(token_text(engine, token))) {
    if (c == ' ') {
      shown += "␣";
    } else {
      shown += c;
    }
  }
  return study::escape_markup(shown);
}

std::string dot_node(const std::string& name, const std::string& token, const std::string& numbers,
                     const std::string& look) {
  return cat("  ", name, " [label=<<b>", token, "</b>",
             numbers.empty()
                 ? ""
                 : cat("<br/><font point-size=\"8\" color=\"#555555\">", numbers, "</font>"),
             ">", look, "];\n");
}

/// Whether a drawing is smaller from left to right: labels are wider than high, so wide trees are,
/// long chains are not.
bool smaller_sideways(const JudgedTree& tree) {
  constexpr double node_width = 150, node_height = 36, gap = 24;  // pixels, as graphviz draws them
  std::vector<bool> has_child(tree.nodes.size(), false);
  std::int32_t depth = 0;
  for (const TreeNode& n : tree.nodes) {
    depth = std::max(depth, n.depth);
    if (n.parent >= 0) has_child[static_cast<std::size_t>(n.parent)] = true;
  }
  const auto leaves = static_cast<double>(std::count(has_child.begin(), has_child.end(), false));
  const double levels = depth + 2.0;  // the root's and the bonus token's too
  return std::max(leaves * node_height, levels * (node_width + gap)) <=
         std::max(leaves * node_width, levels * (node_height + gap));
}

std::string as_dot(const Engine& engine, const JudgedTree& tree) {
  const std::string accepted_look = ", style=filled, fillcolor=palegreen";
  const bool sideways = smaller_sideways(tree);
  const bool constrained = has_states(tree);
  const std::vector<std::size_t> states = numbered_states(tree);
  std::string out =
      cat("digraph tree {\n  graph [rankdir=", sideways ? "LR" : "TB",
          ", ordering=out, splines=line, nodesep=0.05, ranksep=0.45, fontname=\"sans-serif\", "
          "fontsize=9,\n"
          "         label=\"D: the draft's probability. v: estimated acceptance of the place.\\l"
          "T: the target's probability. Green: accepted.\\lDouble frame: the target's own "
          "token.\\l",
          constrained ? "state: of the constraint, with how many tokens may follow.\\l" : "",
          "\"];\n"
          "  node [shape=box, fontname=\"monospace\", fontsize=11, margin=\"0.08,0.03\", width=0, "
          "height=0];\n"
          "  edge [arrowhead=none, tailport=",
          sideways ? "e, headport=w" : "s, headport=n", "];\n");
  std::size_t last_accepted = 0;
  for (std::size_t i = 0; i < tree.nodes.size(); ++i) {
    const TreeNode& n = tree.nodes[i];
    const auto parent = static_cast<std::size_t>(n.parent);
    if (n.accepted && i > 0 && parent == last_accepted) last_accepted = i;
    char numbers[128] = "";
    if (i > 0) {
      char drafted[16];
      if (n.looked_up) {
        std::snprintf(drafted, sizeof drafted, "%s", found_by(n));
      } else {
        std::snprintf(drafted, sizeof drafted, "D %.2f", n.draft_prob);
      }
      std::snprintf(numbers, sizeof numbers, "%s  v %.2f  T %.2f", drafted, n.value, n.target_prob);
    }
    if (constrained) {
      const std::string before = numbers;
      std::snprintf(numbers, sizeof numbers, "%s%sstate %zu: %d", before.c_str(),
                    i > 0 ? "<br/>" : "", states[i], n.allowed);
    }
    out +=
        dot_node(cat("n", i), dot_token(engine, n.token), numbers, n.accepted ? accepted_look : "");
    if (i > 0) out += cat("  n", parent, " -> n", i, n.accepted ? " [penwidth=2]" : "", ";\n");
  }
  out += dot_node("bonus", dot_token(engine, tree.bonus), "from the target",
                  accepted_look + ", peripheries=2");
  return out + cat("  n", last_accepted, " -> bonus [penwidth=2];\n}\n");
}

std::string as_json(const Engine& engine, const JudgedTree& tree,
                    std::optional<std::uint64_t> seed) {
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
                     {"accepted", n.accepted},
                     {"looked_up", n.looked_up}});
    if (!has_states(tree)) continue;
    nodes.back().update(Json{{"forced", n.forced}, {"state", n.state}, {"allowed", n.allowed}});
  }
  return Json{{"nodes", nodes},
              {"bonus", tree.bonus},
              {"draft_passes", tree.draft_passes},
              {"acceptance", name_of(tree.acceptance)},
              {"seed", seed ? Json(*seed) : Json()}}
             .dump(-1, ' ', false, Json::error_handler_t::replace) +
         "\n";
}

}  // namespace

int tree(const std::vector<std::string>& arguments) {
  po::options_description output("Output");
  output.add_options()("format",
                       po::value<std::string>()->default_value("text")->value_name("text|dot|json"),
                       "dot is for graphviz");
  po::options_description all;
  all.add(output)
      .add(prompt_options())
      .add(token_options())
      .add(sampling_options())
      .add(drafting_options())
      .add(constraint_options());
  all.add(model_options());
  po::variables_map values;
  if (!parse(
          arguments, all,
          "coppice tree: grow and judge one token tree after a prompt, and draw it\n\n"
          "Columns: the draft's probability of the token, the estimated acceptance of its\n"
          "position (DySpec), the target's probability. The accepted path is coloured\n"
          "on a terminal, else marked by a star. \"found\": looked up, not drawn. Under a "
          "constraint,\n"
          "its state behind each token and how many tokens may follow; \"forced\": its texts go\n"
          "on so.\n",
          values)) {
    return 0;
  }
  const std::string format =
      choice_in("--format", values["format"].as<std::string>(), {"text", "dot", "json"});
  GenerateOptions request = generate_options(values);
  read_token_options(values, request);
  const auto constraint = ConstraintReader().read(values);
  const Prompt prompt = read_prompt(values);
  request.validate();
  EngineOptions engine_request = engine_options(values, request.speculation);
  if (std::holds_alternative<Plain>(request.speculation)) {
    throw_usage("--policy none grows no tree; use another policy");
  }
  if (engine_request.draft.empty() && !asks_for(request.lookup) && constraint == nullptr) {
    throw_usage(
        "tree needs a draft model; give --draft MODEL, --lookup text, or a constraint that forces "
        "tokens, as --json-schema");
  }
  read_acceptance_vector(values, engine_request, request);
  tell_usual_acceptance(values, request);
  ProgressLine progress;
  engine_request.progress = [&](const LoadEvent& event) { progress.show(event); };
  Engine engine = Engine::load(engine_request);
  progress.clear();
  request.constraint = Constraints().build(engine, constraint);
  const JudgedTree judged = prompt.ids ? engine.judge_tree(prompt.tokens, request)
                                       : engine.judge_tree(prompt.text, request);
  if (format == "dot") {
    write_out(as_dot(engine, judged));
  } else if (format == "json") {
    const bool sampled = request.sampling.temperature > 0.0;
    write_out(as_json(engine, judged, sampled ? std::optional(request.seed) : std::nullopt));
  } else {
    std::string rule;
    if (request.sampling.temperature > 0.0) {
      rule = judged.acceptance == Acceptance::coupled ? " under coupled acceptance"
                                                      : " under rejection";
    }
    write_out(as_text(engine, judged, rule, stdout_takes_colour()));
    if (values.count("seed") == 0 && request.sampling.temperature > 0.0) {
      write_out(cat("seed ", request.seed, "\n"));
    }
  }
  return 0;
}

}  // namespace coppice::cli
