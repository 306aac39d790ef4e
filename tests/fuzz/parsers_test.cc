// Every parser against damaged files: they load, or one line says why not. Nothing else.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "base/checked_lines.h"
#include "base/error.h"
#include "base/files.h"
#include "base/json_file.h"
#include "base/utf8.h"
#include "chat/chat_template.h"
#include "chat/json.h"
#include "drafting/sequoia.h"
#include "drafting/shape_json.h"
#include "drafting/static_tree.h"
#include "fuzz/mutator.h"
#include "models/checkpoint.h"
#include "models/config.h"
#include "models/gguf/gguf_file.h"
#include "models/model.h"
#include "models/model_folder.h"
#include "models/safetensors.h"
#include "models/settings/folder_notes.h"
#include "models/settings/template_settings.h"
#include "models/settings/tokenizer_settings.h"
#include "models/tokenizer/tokenizer.h"
#include "reference/files.h"
#include "reference/gguf_file.h"
#include "reference/naive_device.h"
#include "reference/tiny_model.h"
#include "sizing/cost_table.h"
#include "study/files/members.h"
#include "study/grid/results.h"
#include "study/grid/trace.h"
#include "study/prompts/prompts.h"
#include "study/replay/recorded_pair.h"
#include "study/replay/recording.h"

namespace coppice::testing {
namespace {

namespace fs = std::filesystem;

#if defined(__SANITIZE_ADDRESS__)
constexpr int rounds = 500;
#else
constexpr int rounds = 1500;
#endif

class Parsers : public ::testing::Test {
 protected:
  fs::path file(const char* name) const { return folder_.path() / name; }

  // Damages `good`, writes it to `path`, and loads it.
  void expect_sound(
      const fs::path& path, const std::string& good, int times, const std::function<void()>& load,
      const std::function<std::string(Mutator&, const std::string&)>& damage =
          [](Mutator& mutator, const std::string& bytes) { return mutator.mutate(bytes); }) {
    write_file(path, good);
    ASSERT_NO_THROW(load()) << "the file without damage";
    Mutator mutator(7);
    int loaded = 0, refused = 0;
    for (int i = 0; i < times; ++i) {
      const std::string bytes = damage(mutator, good);
      write_file(path, bytes);
      try {
        load();
        ++loaded;
      } catch (const Error& error) {
        const std::string message = error.what();
        EXPECT_EQ(message, printable(message));
        EXPECT_GT(message.size(), 10u) << message;
        EXPECT_LT(message.size(), 2000u) << message;
        ++refused;
      } catch (const std::exception& error) {
        ADD_FAILURE() << "damage " << i << ": " << error.what() << "\n" << quote(bytes);
      }
    }
    write_file(path, good);
    EXPECT_GT(refused, times / 20) << loaded << " loaded";
  }

  const TemporaryFolder folder_;
};

TEST_F(Parsers, Configs) {
  TinyModel model;
  model.rope_scaling = R"({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
          "high_freq_factor": 4.0, "original_max_position_embeddings": 8192})";
  write_tiny_model(folder_.path(), model);
  const auto load = [&] { read_config(folder_.path()); };
  expect_sound(file("config.json"), bytes_of(file("config.json")), rounds, load);
  expect_sound(file("generation_config.json"),
               R"({"bos_token_id": 1, "eos_token_id": [2, 3], "temperature": 0.6})", rounds, load);
  for (const auto& [name, family] : testing::tiny_families()) {
    expect_sound(file("config.json"), tiny_model_config(family), rounds / 15, load);
  }
}

TEST_F(Parsers, SettingsOfTokenizers) {
  const auto load = [&] {
    read_tokenizer_settings(folder_.path());
    read_template_settings(folder_.path());
  };
  write_file(file("chat_template.jinja"), "{{ messages }}");
  const std::string config = R"({"bos_token": {"content": "<s>", "lstrip": true}, "legacy": false,
      "added_tokens_decoder": {"7": {"content": "a", "special": true, "rstrip": true}},
      "extra_special_tokens": {"image_token": "i"}, "add_prefix_space": true, "x_token": "x",
      "chat_template": [{"name": "default", "template": "t"}], "tokenizer_class": "LlamaTokenizer"})";
  expect_sound(file("tokenizer_config.json"), config, rounds, load);
  fs::remove(file("tokenizer_config.json"));
  expect_sound(file("special_tokens_map.json"),
               R"({"eos_token": {"content": "</s>"}, "additional_special_tokens": ["a", "b"]})",
               rounds, load);
  expect_sound(file("added_tokens.json"), R"({"<a>": 258, "<b>": 259})", rounds, load);
}

// What `coppice info` says of a folder, by headers alone, is what loading says of it.
TEST_F(Parsers, FoldersAreDescribedAsTheyLoad) {
  TinyModel model;
  model.layers = 1;
  write_tiny_model(folder_.path(), model);
  const auto device = make_naive_device();
  int agreed = 0;
  const auto load = [&] {
    std::string loading, described;
    try {
      Model::load(folder_.path(), *device);
    } catch (const Error& error) {
      loading = error.what();
    }
    try {
      const ModelFolder found(folder_.path());
      if (!found.obstacles.empty()) described = found.obstacles.front();
    } catch (const Error& error) {
      described = error.what();
    }
    EXPECT_EQ(loading.empty(), described.empty()) << loading << "\n" << described;
    // For a config that coppice cannot run, loading says which folder it is.
    if (loading.find(described) != loading.npos) ++agreed;
    if (!loading.empty()) throw_failure(loading);
  };
  const int times = rounds / 3;
  expect_sound(file("config.json"), bytes_of(file("config.json")), times, load);
  const std::string weights = bytes_of(file("model.safetensors"));
  std::uint64_t length = 0;
  std::memcpy(&length, weights.data(), sizeof length);
  const std::string data = weights.substr(sizeof length + length);
  expect_sound(file("model.safetensors"), weights, times, load,
               [&](Mutator& mutator, const std::string& good) {
                 const std::string header = good.substr(sizeof length, length);
                 return safetensors_bytes(mutator.mutate(header), data);
               });
  EXPECT_GT(agreed, 2 * times * 9 / 10) << "nearly always in the same words";
}

TEST_F(Parsers, Weights) {
  TinyModel model;
  model.shards = 3;
  write_tiny_model(folder_.path(), model);
  const auto load = [&] { Checkpoint checkpoint(folder_.path()); };
  const fs::path index = file("model.safetensors.index.json");
  expect_sound(index, bytes_of(index), rounds / 2, load);

  const std::string good =
      safetensors_bytes({{"a", "F32", {2, 3}, std::string(24, 'x')}, {"b", "BF16", {3}, "123456"}});
  const fs::path weights = file("one.safetensors");
  expect_sound(weights, good, 2 * rounds, [&] {
    const SafetensorsFile read(weights);
    for (const auto& [name, tensor] : read.tensors()) {
      ASSERT_EQ(read.read(tensor).size(), tensor.bytes);
    }
  });
}

// A header's length kept right, so that damage reaches what stands behind it.
TEST_F(Parsers, WeightHeaders) {
  const std::string good =
      safetensors_bytes({{"a", "F32", {2, 3}, std::string(24, 'x')}, {"b", "BF16", {3}, "123456"}});
  const std::string header = good.substr(8, good.size() - 8 - 30),
                    data = good.substr(good.size() - 30);
  const fs::path weights = file("one.safetensors");
  expect_sound(
      weights, good, 2 * rounds,
      [&] {
        const SafetensorsFile read(weights);
        for (const auto& [name, tensor] : read.tensors()) read.read(tensor);
      },
      [&](Mutator& mutator, const std::string&) {
        return safetensors_bytes(mutator.mutate(header), data);
      });
}

TEST_F(Parsers, Tokenizers) {
  const std::string good =
      bytes_of(fs::path(COPPICE_SOURCE_DIR) / "models/stories/target/tokenizer.model");
  expect_sound(file("tokenizer.model"), good, rounds / 5, [&] {
    const auto tokenizer = Tokenizer::load(folder_.path());
    const std::string text = "It was late,\xc3\xa9 \xe2\x96\x81 two  spaces";
    EXPECT_FALSE(tokenizer->encode(text).empty());
    EXPECT_FALSE(tokenizer->encode(text, Tokenizer::after_text).empty());
    for (TokenId token = 0; token < tokenizer->pieces(); ++token) tokenizer->bytes_of(token);
  });
}

TEST_F(Parsers, GgufFiles) {
  GgufBytes good = shapes_of("gemma3", 2);
  good.add("gemma3.attention.key_length", 8).add("gemma3.attention.sliding_window", 512);
  good.add_list("gemma3.attention.sliding_window_pattern", GgufBytes::boolean, 2, {1, 0});
  good.add("tokenizer.ggml.model", "gpt2").add("tokenizer.ggml.pre", "qwen2");
  good.add("tokenizer.ggml.tokens", std::vector<std::string>{"<s>", "a", "b", "ab", "<think>"});
  good.add("tokenizer.ggml.token_type", std::vector<int>{3, 1, 1, 1, 4});
  good.add("tokenizer.ggml.merges", std::vector<std::string>{"a b"});
  good.add("tokenizer.ggml.bos_token_id", 0).add("tokenizer.ggml.add_bos_token", true);
  good.add("tokenizer.chat_template", "{{ bos_token }}").add("general.sampling.temp", 0.5);
  good.tensor("token_embd.weight", {32, 5}, 8, std::string(170, 'w'));
  good.floats("rope_freqs.weight", {1.0f, 2.0f, 4.0f, 8.0f});
  const auto load = [&] {
    const fs::path path = file("m.gguf");
    const auto opened = open_gguf(path);
    for (const auto& [name, tensor] : opened->tensors()) {
      std::string bytes(tensor.bytes, ' ');
      opened->read(tensor, 0, std::as_writable_bytes(std::span(bytes)));
    }
    folder_notes(path, read_config(path));
    read_template_settings(path);
    Tokenizer::load(path)->encode("<s>ab <think>");
  };
  expect_sound(file("m.gguf"), good.bytes(), rounds, load);
  // Lengths that stay right let damage reach what is read with the values.
  expect_sound(file("m.gguf"), good.bytes(), rounds, load,
               [](Mutator& mutator, const std::string& bytes) {
                 std::string damaged = bytes;
                 damaged[mutator.below(bytes.size())] ^= static_cast<char>(1 << mutator.below(8));
                 return damaged;
               });
}

TEST_F(Parsers, ChatTemplates) {
  const std::string good = R"({%- macro say(role, text, mark='##') -%}
{{ mark }} {{ role|title }}: {{ text|trim }}{{ caller() if caller }}
{% endmacro -%}
{% set ns = namespace(n=0, seen=[]) %}
{# Every statement once. #}
{% for m in messages if m.role != 'tool' recursive %}
  {% set ns.n = ns.n + loop.index0 * 2 %}{% set ns.seen = ns.seen + [m.role] %}
  {% if loop.first and m['role'] == "system" %}{{ say(m.role, m.content) }}
  {%- elif m.content is string and 'x' not in m.content[1:-1] %}
    {%- call say('user', m.content ~ '!') %} ({{ ns.n }}){% endcall %}
  {% else %}{% continue %}{% endif %}
{% else %}nothing{% endfor %}
{% filter upper %}{{ {'a': [1, 2.5, none, (true,)]}|tojson(indent=2) }}{% endfilter %}
{% set late %}{% generation %}{{ "%s-%03d"|format('q', 7) }}{% endgeneration %}{% endset %}
{{ late.split('-')|map('upper')|join(', ') if ns.n >= 0 else raise_exception('no') }}
{{ messages|selectattr('role', 'equalto', 'user')|list|length }}{{ ns.seen[::-1] }}
{% raw %}{{ raw }}{% endraw %}{{ '\u00e9\n'.strip() }}{{ 7 // 2 ** 2 % 3 - -1 }}
)";
  const fs::path path = file("chat_template.jinja");
  const chat::Value context = chat::parse_json(
      R"({"messages": [{"role": "system", "content": " Be brief. "},
                      {"role": "user", "content": "h\u00e9llo"}, {"role": "tool"}]})",
      "context", true);
  expect_sound(path, good, rounds, [&] {
    const std::string source = read_file(path, "", 1 << 20);
    const chat::Text text = chat::ChatTemplate::parse(source, "template").render(context, 0);
    EXPECT_TRUE(is_valid_utf8(text.view()));
  });
}

// For each stage's kind, what is damaged loads and encodes, or one line says why not.
TEST_F(Parsers, JsonTokenizers) {
  for (const char* name : {"byte_level", "whole_text", "unigram", "words"}) {
    const auto golden = read_json_object(
        fs::path(COPPICE_SOURCE_DIR) / "tests/golden/tokenizers" / (std::string(name) + ".json"),
        1 << 20);
    nlohmann::json tokenizer = golden->at("tokenizer");
    // Most damage would hit the vocabulary: half of it is kept from there.
    const std::string model = tokenizer["model"].dump();
    tokenizer.erase("model");
    const std::string rest = tokenizer.dump();
    const auto joined = [](const std::string& stages, const std::string& pieces) {
      return "{\"model\":" + pieces + "," + stages.substr(std::min<std::size_t>(1, stages.size()));
    };
    expect_sound(
        file("tokenizer.json"), joined(rest, model), rounds / 4,
        [&] {
          const auto loaded = Tokenizer::load(folder_.path());
          const auto tokens =
              loaded->encode("<s>It was late,\xc3\xa9 \xe2\x96\x81 <end>  1234</s>");
          loaded->decode(loaded->framed(tokens), true);
          for (const TokenId before : tokens) loaded->encode(" <end> late", before);
          for (TokenId token = 0; token < std::min(loaded->pieces(), 400); ++token) {
            loaded->bytes_of(token);
          }
        },
        [&](Mutator& mutator, const std::string&) {
          return mutator.below(2) == 0 ? joined(mutator.mutate(rest), model)
                                       : joined(rest, mutator.mutate(model));
        });
  }
}

TEST_F(Parsers, Trees) {
  const fs::path tree = file("tree.json");
  const std::vector<RankPath> paths = {{0}, {1}, {0, 0}, {0, 1}, {0, 0, 0}};
  write_shape_file(tree, {{"paths", TreeShape(paths).paths()}});
  expect_sound(tree, bytes_of(tree), rounds, [&] { read_tree_shape(tree); });
  const std::vector<double> acceptance = {0.6, 0.2, 0.05};
  write_grow_map(tree, plan_sequoia(acceptance, {.size = 8, .depth = 4, .branching = 3}));
  expect_sound(tree, bytes_of(tree), rounds, [&] { read_grow_map(tree); });
}

TEST_F(Parsers, Prompts) {
  const fs::path prompts = file("prompts.jsonl");
  expect_sound(prompts,
               "{\"prompt\": \"It was late\", \"kind\": \"tales\"}\n"
               "{\"turns\": [\"one\", \"two\"], \"category\": \"x\"}\n"
               "{\"tokens\": [1, 2, 30]}\n{\"question\": \"why\"}\n",
               rounds, [&] { study::read_prompts(prompts); });
}

TEST_F(Parsers, CostTables) {
  const PassCosts costs(1, 100, {{1, 1e-3, 2e-3}, {2, 1.1e-3, 2.2e-3}, {8, 2e-3, 4e-3}});
  write_cost_table(file("costs.json"), CostTable{"x", costs, costs});
  expect_sound(file("costs.json"), bytes_of(file("costs.json")), rounds, [&] {
    const auto table = read_cost_table(file("costs.json"), std::nullopt);
    for (const int rows : {1, 2, 5, 500}) {
      EXPECT_TRUE(std::isfinite(table->target.seconds(rows, 50)));
      EXPECT_TRUE(std::isfinite(table->draft.seconds(std::max(rows, 2), 50)));
    }
  });
}

TEST_F(Parsers, Recordings) {
  TinyModel model;
  write_tiny_model(file("target"), model);
  write_tiny_model(file("draft"), model);
  EngineOptions options;
  options.target = file("target");
  options.draft = file("draft");
  options.device = DeviceKind::cpu;
  options.threads = 1;
  options.cpu_dtype = CpuDtype::f32;
  Engine engine = Engine::load(options);
  study::RecordOptions record;
  record.generate.max_new_tokens = 4;
  const study::Recording recording = record_all(engine, record, tiny_prompts(2));
  {
    study::RecordingWriter writer(file("first"), recording.header);
    for (const study::RecordedText& text : recording.texts) writer.append(text);
  }
  const fs::path path = file("recording");
  const std::string good = bytes_of(file("first"));
  const auto load = [&] { study::read_recording(path); };
  expect_sound(path, good, rounds / 3, load);

  // One block damaged, its length and checksum made right again.
  const std::size_t block = good.find('\n') + 1;
  expect_sound(path, good, rounds / 3, load, [&](Mutator& mutator, const std::string&) {
    std::string out = good.substr(0, block);
    std::size_t at = block;
    const std::size_t victim = mutator.below(3);  // the header or a text
    for (std::size_t number = 0; at < good.size(); ++number) {
      std::uint64_t length = 0;
      std::memcpy(&length, good.data() + at, sizeof length);
      at += 3 * sizeof length;
      std::string payload = good.substr(at, length);
      if (number == victim) payload = mutator.mutate(payload);
      out += study::recording_block(payload);
      at += length;
    }
    return out;
  });
}

TEST_F(Parsers, StudyResults) {
  study::Result result;
  result.cell = study::Cell{}.key();
  result.turns = {{9, 1, {5, 6, 7}, "tales", "length"}};
  result.draft_passes = 30;
  result.tree_sizes = {8, 16, 0};
  result.accepted = {2, 8, 0};
  result.kept = {3, 9, 1};
  result.device = "cpu";
  result.dtype = "f32";
  const study::StudyPlan plan{{study::Cell{}}, {{"a", "x"}}, 2};
  result.prompt = "a";
  const std::string object = nlohmann::ordered_json(result).dump();
  const fs::path path = file("results.jsonl");
  const auto load = [&] { study::Results(path, plan, study::Access::append); };
  const std::string good = with_checksum(object) + "\n";
  expect_sound(path, good, rounds / 3, load);
  expect_sound(path, good, rounds / 2, load, [&](Mutator& mutator, const std::string&) {
    return with_checksum(mutator.mutate(object)) + "\n";
  });
}

TEST_F(Parsers, Traces) {
  const fs::path path = file("a.trace");
  study::TraceWriter(path).append({"chain 2", "h", "a run", {}});
  expect_sound(path, bytes_of(path), rounds / 4, [&] { study::TraceWriter writer(path); });
}

}  // namespace
}  // namespace coppice::testing
