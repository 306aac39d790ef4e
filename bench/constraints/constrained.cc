// What constraints do to the texts of a pair: speed beside free texts, and how far writing forced
// text unasked (jump-forward by retokenisation) would be from the masked target's law.
//
//   constrained TARGET DRAFT [PROMPTS [COUNT [TOKENS [0|1 [cpu|cuda]]]]]      0: no speeds
//
// Speed: each prompt goes on under every setting, one after the other, in an order of its own. A
// ratio is the median over prompts and schemas of two settings' decode tokens per second on the
// same prompt. A free text has as many tokens as the constrained plain one. Forced: the share of
// its tokens that the constraint leaves no choice about, or whose usual spelling every text goes on
// with.
//
// Jump-forward: where a constraint forces a run of text, an engine that writes it unasked writes
// its usual spelling. The masked target gives that spelling's next token the chance p; 1 - p is the
// total variation of the two laws of that token. "Texts": the share of the masked target's own
// texts with another spelling somewhere; the two laws of whole texts are at least as far apart.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "constraints/constraint.h"
#include "coppice.h"
#include "engine/access.h"
#include "median.h"
#include "options.h"
#include "texts.h"

namespace {

using namespace coppice;

struct Form {
  const char* name;
  const char* schema;
};
constexpr std::array forms = {
    Form{"five fields", R"({"type":"object","properties":{"name":{"type":"string","maxLength":24},
        "age":{"type":"integer","minimum":0,"maximum":120},"story":{"type":"string","maxLength":160},
        "tags":{"type":"array","items":{"type":"string","maxLength":12},"maxItems":3},
        "ok":{"type":"boolean"}},"required":["name","age","story","tags","ok"],
        "additionalProperties":false})"},
    Form{"two texts", R"({"type":"object","properties":{"title":{"type":"string","maxLength":60},
        "summary":{"type":"string","maxLength":240}},"required":["title","summary"],
        "additionalProperties":false})"},
    Form{"items", R"({"type":"array","items":{"type":"object","properties":{
        "animal":{"enum":["cat","dog","bird"]},"says":{"type":"string","maxLength":40}},
        "required":["animal","says"],"additionalProperties":false},"minItems":3,"maxItems":4})"},
    Form{"named fields",
         R"({"type":"object","properties":{"document_type":{"const":"children's story"},
        "main_character_name":{"type":"string","maxLength":20},
        "main_character_species":{"enum":["cat","dog","bird"]},"has_happy_ending":{"type":"boolean"},
        "first_sentence":{"type":"string","maxLength":120}},"required":["document_type",
        "main_character_name","main_character_species","has_happy_ending","first_sentence"],
        "additionalProperties":false})"}};

struct Setting {
  const char* name;
  bool constrained;
  Speculation speculation;
  bool draft = true;
};
const std::array settings = {
    Setting{"free, plain", false, Plain{}}, Setting{"free, dyspec", false, Dyspec{}},
    Setting{"constrained, plain", true, Plain{}}, Setting{"constrained, dyspec", true, Dyspec{}},
    Setting{"constrained, forced alone", true, Dyspec{}, false}};

/// What a constraint's places said, over all texts.
struct Forced {
  double tokens = 0.0, forced = 0.0;
  double places = 0.0, variation = 0.0;  ///< where the usual spelling is one of several
  double texts = 0.0, unusual = 0.0;
};

// Watches plain texts.
class Watch {
 public:
  Watch(Engine& engine, Forced& sums) : engine_(engine), sums_(sums) {
    former_ = engine_.observe([this](const StepView& step) { look(step); });
  }
  ~Watch() {
    engine_.observe(std::move(former_));
    sums_.texts += 1.0;
    sums_.unusual += unusual_ ? 1.0 : 0.0;
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

 private:
  void look(const StepView& step) {
    const TokenRules& rules = *step.state.rules;
    const auto mask = rules.mask(step.state.rule_state);
    const std::vector<TokenId> run = rules.forced(step.state.rule_state);
    sums_.tokens += 1.0;
    if (mask->only >= 0) sums_.forced += 1.0;
    if (mask->only >= 0 || run.empty()) return;
    const double chance =
        static_cast<double>(step.target.distribution(0)[static_cast<std::size_t>(run.front())]);
    sums_.places += 1.0;
    sums_.variation += 1.0 - chance;
    if (step.verdict.bonus == run.front()) {
      sums_.forced += 1.0;
    } else {
      unusual_ = true;
    }
  }

  EngineAccess engine_;
  Forced& sums_;
  StepObserver former_;
  bool unusual_ = false;
};

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 3) {
    std::cerr << "usage: constrained TARGET DRAFT [PROMPTS [COUNT [TOKENS [0|1 [cpu|cuda]]]]]\n";
    return 2;
  }
  const auto argument = [&](int place, const char* usual) {
    return std::string(argc > place ? argv[place] : usual);
  };
  EngineOptions load;
  load.target = argv[1];
  load.draft = argv[2];
  load.device = bench::device_in(argument(7, "cpu"));
  Engine engine = Engine::load(load);
  auto prompts = bench::read_prompt_lines(
      argument(3, COPPICE_SOURCE_DIR "/bench/prompts/prompts.jsonl"), 1 << 20);
  const auto count = static_cast<std::size_t>(std::atoi(argument(4, "12").c_str()));
  prompts.resize(std::min(prompts.size(), count));
  const int most = std::atoi(argument(5, "96").c_str());
  const bool times = argument(6, "1") != "0";

  std::printf(
      "| form | temperature | forced | %s |\n",
      "constrained to free, plain | dyspec to plain, "
      "free | dyspec to plain, constrained | constrained to free, dyspec | forced alone to plain");
  std::printf("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n");
  std::vector<std::string> jumps;
  for (const Form& form : forms) {
    const Constraint constraint = Constraint::json_schema(engine, form.schema);
    for (const double temperature : {0.0, 0.7, 1.0}) {
      std::array<std::vector<double>, settings.size()> speeds;
      Forced forced;
      for (std::size_t p = 0; p < prompts.size(); ++p) {
        const std::string prompt = prompts[p].text + "\nAs JSON: ";
        GenerateOptions options;
        options.max_new_tokens = most;
        options.sampling.temperature = temperature;
        options.stream = p;
        options.constraint = constraint;
        options.speculation = Plain{};
        Generation plain;
        {
          const Watch watch(engine, forced);
          plain = engine.generate(prompt, options);
        }
        const auto tokens = static_cast<std::int32_t>(plain.tokens.size());
        for (std::size_t i = 0; times && i < settings.size(); ++i) {
          const std::size_t s = (i + p) % settings.size();
          const Setting& setting = settings[s];
          options.constraint = setting.constrained ? constraint : Constraint();
          options.ignore_eos = !setting.constrained;
          options.max_new_tokens = setting.constrained ? most : tokens;
          options.speculation = setting.speculation;
          options.use_draft = setting.draft;
          speeds[s].push_back(engine.generate(prompt, options).statistics.decode_tokens_per_second);
        }
      }
      const auto ratio = [&](std::size_t a, std::size_t b) {
        std::vector<double> all;
        for (std::size_t p = 0; p < speeds[a].size(); ++p)
          all.push_back(speeds[a][p] / speeds[b][p]);
        return bench::median(all);
      };
      std::printf("| %s | %.1f | %.0f%% | %.2f | %.2f | %.2f | %.2f | %.2f |\n", form.name,
                  temperature, 100.0 * forced.forced / forced.tokens, ratio(2, 0), ratio(1, 0),
                  ratio(3, 2), ratio(3, 1), ratio(4, 2));
      std::fflush(stdout);
      if (temperature == 0.0) continue;
      char line[160];
      std::snprintf(line, sizeof line, "| %s | %.1f | %.1f | %.3f | %.0f%% |", form.name,
                    temperature, forced.places / forced.texts,
                    forced.places > 0.0 ? forced.variation / forced.places : 0.0,
                    100.0 * forced.unusual / forced.texts);
      jumps.push_back(line);
    }
  }
  std::printf(
      "\n| form | temperature | places a text | 1 - p | texts |\n| --- | ---: | ---: | ---: | ---: "
      "|\n");
  for (const std::string& line : jumps) std::printf("%s\n", line.c_str());
  return 0;
} catch (const std::exception& error) {
  std::cerr << "constrained: " << error.what() << "\n";
  return 1;
}
