#!/usr/bin/env python3
"""Makes the golden data of golden_test: what Hugging Face transformers computes.

    make_golden.py OUT [NAME...]  tiny random models of every supported variant, with logits, or
                                  those of these names
    make_golden.py OUT --shipped MODELS
                                  logits and greedy tokens of MODELS/target and MODELS/draft

OUT/NAME holds, for a tiny model, the model folder itself (config.json, weights), and always
  golden.json         texts, token sequences, greedy continuations with the gap between the two
                      largest logits at every step, versions
  golden.safetensors  tiny: logits_I [tokens, vocab] f32
                      shipped: top_ids_I [tokens, 32] i32, top_logits_I [tokens, 32] f32,
                      log_sum_exp_I [tokens] f32
for each sequence I.

Parameters are widened to float64 as stored; buffers (rotary frequencies) stay as transformers
made them, in float32: converting a model to bfloat16 and back rounds them too. transformers
computes RMS norms in float32 whatever the model's type, so the logits are good to about 1e-6.
The factor of Gemma's embeddings is rounded to the type of the table, as when transformers runs the
model in that type.
Needs torch, transformers 5, safetensors; sentencepiece for --shipped. Runs on the CPU.
"""

import argparse
import json
import math
import os
import traceback

import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM
import transformers

BASE = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "attention_bias": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_act": "silu",
    "hidden_size": 32,
    "intermediate_size": 48,
    "max_position_embeddings": 256,
    "mlp_bias": False,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
    "rope_scaling": None,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "vocab_size": 80,
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 128,
}
MISTRAL = {"architectures": ["MistralForCausalLM"], "model_type": "mistral",
           "sliding_window": None}
QWEN2 = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2",
         "use_sliding_window": False, "sliding_window": 64, "max_window_layers": 2}

# Small enough to be many. Token ids are within the vocabulary.
SMALL = {"vocab_size": 48, "intermediate_size": 32, "pad_token_id": 0}
QWEN3 = {**SMALL, "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "head_dim": 16,
         "use_sliding_window": False, "sliding_window": None, "max_window_layers": 2}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
GEMMA = {**SMALL, "hidden_act": "absent", "hidden_activation": "gelu_pytorch_tanh",
         "head_dim": 16, "tie_word_embeddings": True, "query_pre_attn_scalar": 8,
         "sliding_window": 6}
GEMMA2 = {**GEMMA, "architectures": ["Gemma2ForCausalLM"], "model_type": "gemma2",
          "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0}
GEMMA3 = {**GEMMA, "architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text",
          "rope_theta": 1000000.0, "rope_local_base_freq": 100.0, "sliding_window_pattern": 2,
          "rope_scaling": {"rope_type": "linear", "factor": 8.0}}
PHI3 = {**SMALL, "architectures": ["Phi3ForCausalLM"], "model_type": "phi3", "hidden_size": 32,
        "num_attention_heads": 2, "num_key_value_heads": 1}
LONGROPE = {"type": "longrope", "short_factor": [1.0, 1.05, 1.2, 1.7, 2.5, 4.0],
            "long_factor": [1.0, 2.0, 5.0, 11.0, 23.0, 40.0]}

# name: (changes to BASE, dtype, shards); a value "absent" removes the field. "positions" is no
# field but how many the model is to be loaded for.
VARIANTS = {
    "llama_f32": ({}, torch.float32, 1),
    "llama_f16": ({}, torch.float16, 1),
    "llama_tied": ({"tie_word_embeddings": True}, torch.bfloat16, 1),
    "llama_head_dim": ({"head_dim": 16}, torch.bfloat16, 1),
    "llama_no_grouping": ({"num_key_value_heads": "absent"}, torch.bfloat16, 1),
    "llama_one_kv_head": ({"num_key_value_heads": 1}, torch.bfloat16, 1),
    "llama_attention_bias": ({"attention_bias": True}, torch.bfloat16, 1),
    "llama_mlp_bias": ({"mlp_bias": True}, torch.bfloat16, 1),
    "llama_theta": ({"rope_theta": 500000.0}, torch.bfloat16, 1),
    "llama_linear": ({"rope_scaling": {"type": "linear", "factor": 4.0}}, torch.bfloat16, 1),
    "llama_llama3": ({"rope_scaling": LLAMA3}, torch.bfloat16, 1),
    "llama_rope_parameters": (
        {"rope_scaling": "absent", "rope_theta": "absent",
         "rope_parameters": {**LLAMA3, "rope_theta": 50000.0}}, torch.bfloat16, 1),
    "llama_sharded": ({}, torch.bfloat16, 2),
    "mistral": (MISTRAL, torch.bfloat16, 1),
    "qwen2": ({**QWEN2, "tie_word_embeddings": True}, torch.bfloat16, 1),
    "mistral_window": ({**SMALL, **MISTRAL, "sliding_window": 8}, torch.bfloat16, 1),
    "qwen2_window": ({**SMALL, **QWEN2, "use_sliding_window": True, "sliding_window": 5,
                      "max_window_layers": 1}, torch.bfloat16, 1),
    "qwen3": ({**QWEN3, "tie_word_embeddings": True}, torch.bfloat16, 1),
    "qwen3_bias_window": (
        {**QWEN3, "attention_bias": True, "use_sliding_window": True, "sliding_window": 7,
         "layer_types": ["sliding_attention", "full_attention"]}, torch.bfloat16, 1),
    "qwen3_yarn": ({**QWEN3, "rope_scaling": YARN}, torch.bfloat16, 1),
    "qwen3_yarn_mscale": (
        {**QWEN3, "rope_scaling": "absent", "rope_theta": "absent",
         "rope_parameters": {**YARN, "rope_theta": 1000.0, "beta_fast": 16.0, "beta_slow": 0.5,
                             "mscale": 1.3, "mscale_all_dim": 0.7, "truncate": False}},
        torch.bfloat16, 1),
    "smollm3": ({**SMALL, "architectures": ["SmolLM3ForCausalLM"], "model_type": "smollm3",
                 "no_rope_layers": [1, 0], "tie_word_embeddings": True}, torch.bfloat16, 1),
    "gemma2": (GEMMA2, torch.bfloat16, 1),
    "gemma3": (GEMMA3, torch.bfloat16, 1),
    "gemma3_rope_parameters": (
        {**GEMMA3, "rope_scaling": "absent", "rope_theta": "absent",
         "rope_local_base_freq": "absent", "sliding_window_pattern": "absent",
         "layer_types": ["full_attention", "sliding_attention"],
         "rope_parameters": {
             "full_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 5000.0},
             "sliding_attention": {"rope_type": "default", "rope_theta": 300.0}}},
        torch.bfloat16, 1),
    # The folder of a model that sees images: the text model's settings and tensors are inside.
    "gemma3_images": (GEMMA3, torch.bfloat16, 1),
    "phi3_window": ({**PHI3, "sliding_window": 9}, torch.bfloat16, 1),
    "phi3_short": ({**PHI3, "rope_scaling": LONGROPE, "partial_rotary_factor": 0.75,
                    "original_max_position_embeddings": 64, "positions": 64}, torch.bfloat16, 1),
    "phi3_long": ({**PHI3, "rope_scaling": LONGROPE, "partial_rotary_factor": 0.75,
                   "original_max_position_embeddings": 8}, torch.bfloat16, 1),
}

TEXTS = [
    "Once upon a time there was a little girl who lived with her grandmother",
    "The old captain looked out over the grey sea, and said nothing for a long while.",
    "\"I cannot tell you that,\" answered the detective, \"until I have seen the room.\"",
    "A farmer has 24 sheep and buys 13 more. How many sheep does he have",
    "Hello! I'd like to order a small latte with oat milk, please.",
    "Caf\u00e9 na\u00efve \u2014 \u4f60\u597d, 3.14159; it's 100% \U0001f332",
]


def tensors_of(config, dtype, generator):
    """Random parameters at which every part of the network matters."""
    hidden, ffn = config["hidden_size"], config["intermediate_size"]
    heads = config["num_attention_heads"]
    kv_heads = config.get("num_key_value_heads", heads)
    head_dim = config.get("head_dim", hidden // heads)
    family = config["model_type"]
    qwen2, phi3, gemma = family == "qwen2", family == "phi3", family.startswith("gemma")
    tensors = {}

    def add(name, shape, mean, deviation):
        values = mean + deviation * torch.randn(shape, generator=generator, dtype=torch.float64)
        tensors[name] = values.to(dtype)

    def norm(name, width):
        add(name + ".weight", (width,), 0.0 if gemma else 1.0, 0.1)

    def linear(name, outputs, inputs, bias, gain=1.0):
        add(name + ".weight", (outputs, inputs), 0.0, gain / math.sqrt(inputs))
        if bias:
            add(name + ".bias", (outputs,), 0.0, 0.25)

    tied = config["tie_word_embeddings"]
    add("model.embed_tokens.weight", (config["vocab_size"], hidden), 0.0,
        1.5 / math.sqrt(hidden) if tied else 1.0)
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        bias = config.get("attention_bias", False)
        norm(prefix + "input_layernorm", hidden)
        if phi3:
            linear(prefix + "self_attn.qkv_proj", (heads + 2 * kv_heads) * head_dim, hidden, False,
                   1.4)
        else:
            linear(prefix + "self_attn.q_proj", heads * head_dim, hidden, bias or qwen2, 1.5)
            linear(prefix + "self_attn.k_proj", kv_heads * head_dim, hidden, bias or qwen2, 1.5)
            linear(prefix + "self_attn.v_proj", kv_heads * head_dim, hidden, bias or qwen2)
        if family in ("qwen3", "gemma3_text"):
            norm(prefix + "self_attn.q_norm", head_dim)
            norm(prefix + "self_attn.k_norm", head_dim)
        linear(prefix + "self_attn.o_proj", hidden, heads * head_dim, bias)
        norm(prefix + "post_attention_layernorm", hidden)
        if gemma:
            norm(prefix + "pre_feedforward_layernorm", hidden)
        mlp_bias = config.get("mlp_bias", False)
        if phi3:
            linear(prefix + "mlp.gate_up_proj", 2 * ffn, hidden, False)
        else:
            linear(prefix + "mlp.gate_proj", ffn, hidden, mlp_bias)
            linear(prefix + "mlp.up_proj", ffn, hidden, mlp_bias)
        linear(prefix + "mlp.down_proj", hidden, ffn, mlp_bias)
        if gemma:
            norm(prefix + "post_feedforward_layernorm", hidden)
    norm("model.norm", hidden)
    if not tied:
        linear("lm_head", config["vocab_size"], hidden, False, 1.5)
    return tensors


def write_folder(folder, config, tensors, shards):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "config.json"), "w") as out:
        json.dump(config, out, indent=1)
        out.write("\n")
    if shards == 1:
        save_file(tensors, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
        return
    names = list(tensors)
    weight_map = {}
    for shard in range(shards):
        part = names[shard * len(names) // shards:(shard + 1) * len(names) // shards]
        file = f"model-{shard + 1:05d}-of-{shards:05d}.safetensors"
        save_file({name: tensors[name] for name in part}, os.path.join(folder, file),
                  metadata={"format": "pt"})
        weight_map.update({name: file for name in part})
    total = sum(t.numel() * t.element_size() for t in tensors.values())
    with open(os.path.join(folder, "model.safetensors.index.json"), "w") as out:
        json.dump({"metadata": {"total_size": total}, "weight_map": weight_map}, out, indent=1)
        out.write("\n")


def load_double(folder, stored=torch.float32):
    """`stored`: the type of the weights on disk."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32,
                                                 attn_implementation="eager")
    model.eval()
    table = model.get_input_embeddings()
    if hasattr(table, "embed_scale"):
        table.embed_scale = table.embed_scale.to(stored).float()
    for parameter in model.parameters():
        parameter.data = parameter.data.double()
    for name, buffer in model.named_buffers():
        if "inv_freq" in name:
            assert buffer.dtype == torch.float32, (name, buffer.dtype)
    return model


def logits_of(model, tokens):
    with torch.no_grad():
        out = model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0]
    assert out.dtype == torch.float64, out.dtype
    return out


def greedy(model, tokens, steps):
    tokens, chosen, gaps = list(tokens), [], []
    for _ in range(steps):
        values, ids = logits_of(model, tokens)[-1].topk(2)
        chosen.append(int(ids[0]))
        gaps.append(float(values[0] - values[1]))
        tokens.append(chosen[-1])
    return chosen, gaps


def check_frequencies(model, config):
    """That transformers read the rotary settings as they are meant, where they are simple."""
    kind = (config.get("rope_parameters") or config.get("rope_scaling") or {})
    kind = kind.get("rope_type", kind.get("type", "default"))
    if kind in ("yarn", "longrope") or config["model_type"] == "gemma3_text":
        return
    heads = config["num_attention_heads"]
    head_dim = config.get("head_dim", config["hidden_size"] // heads)
    settings = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
    theta = settings.get("rope_theta", config.get("rope_theta"))
    wanted = []
    for i in range(0, head_dim, 2):
        frequency = theta ** (-i / head_dim)
        kind = settings.get("rope_type", settings.get("type"))
        if kind == "linear":
            frequency /= settings["factor"]
        elif kind == "llama3":
            context = settings["original_max_position_embeddings"]
            turns = context * frequency / (2 * math.pi)
            low, high = settings["low_freq_factor"], settings["high_freq_factor"]
            blend = min(1.0, max(0.0, (turns - low) / (high - low)))
            frequency *= blend + (1.0 - blend) / settings["factor"]
        wanted.append(frequency)
    found = model.model.rotary_emb.inv_freq.double()
    assert torch.allclose(found, torch.tensor(wanted, dtype=torch.float64), rtol=1e-5), found


def write_golden(folder, sequences, tensors, positions=0):
    save_file(tensors, os.path.join(folder, "golden.safetensors"))
    about = {"transformers": transformers.__version__, "torch": torch.__version__,
             "sequences": sequences}
    if positions:
        about["positions"] = positions
    with open(os.path.join(folder, "golden.json"), "w") as out:
        json.dump(about, out)
        out.write("\n")


def rounded(gaps):
    return [float(f"{gap:.7g}") for gap in gaps]


def put_inside(folder, config, tensors):
    """Makes the folder that of a model of text and images, as published, without the images."""
    os.remove(os.path.join(folder, "model.safetensors"))
    nested = {"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3",
              "eos_token_id": [config["eos_token_id"], 5], "vision_config": {},
              "text_config": {k: v for k, v in config.items() if k != "architectures"}}
    inside = {"language_model." + name: values for name, values in tensors.items()}
    inside["vision_tower.weight"] = torch.zeros(4, dtype=torch.bfloat16)
    write_folder(folder, nested, inside, 1)


def make_variant(folder, index, changes, dtype, shards):
    config = {key: value for key, value in {**BASE, **changes}.items() if value != "absent"}
    positions = config.pop("positions", 0)
    generator = torch.Generator().manual_seed(1000 + index)
    tensors = tensors_of(config, dtype, generator)
    write_folder(folder, config, tensors, shards)
    model = load_double(folder, dtype)
    for name, values in tensors.items():
        assert torch.equal(model.get_parameter(name).data, values.double()), name
    check_frequencies(model, config)
    sequences, logits = [], {}
    for i, length in enumerate((13, 31)):
        tokens = torch.randint(0, config["vocab_size"], (length,), generator=generator).tolist()
        logits[f"logits_{i}"] = logits_of(model, tokens).float().contiguous()
        chosen, gaps = greedy(model, tokens, 16)
        sequences.append({"tokens": tokens, "greedy": chosen, "gaps": rounded(gaps)})
    write_golden(folder, sequences, logits, positions)
    if folder.endswith("_images"):
        put_inside(folder, config, tensors)
    return float(logits["logits_1"].abs().max())


def make_tiny(out_dir, names):
    failed = []
    for index, (name, (changes, dtype, shards)) in enumerate(VARIANTS.items()):
        if names and name not in names:
            continue
        try:
            largest = make_variant(os.path.join(out_dir, name), index, changes, dtype, shards)
            print(f"{name}: largest logit {largest:.3f}")
        except Exception:  # one variant must not cost the others
            traceback.print_exc()
            failed.append(name)
    if failed:
        raise SystemExit("failed: " + ", ".join(failed))


def make_shipped(out_dir, models):
    import sentencepiece
    for name in ("target", "draft"):
        source = os.path.join(models, name)
        pieces = sentencepiece.SentencePieceProcessor(
            model_file=os.path.join(source, "tokenizer.model"))
        model = load_double(source)
        bos = AutoConfig.from_pretrained(source).bos_token_id
        folder = os.path.join(out_dir, "stories_" + name)
        os.makedirs(folder, exist_ok=True)
        sequences, tensors = [], {}
        for i, text in enumerate(TEXTS):
            ids = pieces.encode(text)
            tokens = ([] if bos is None else [bos]) + ids
            logits = logits_of(model, tokens)
            top = logits.topk(32)
            tensors[f"top_ids_{i}"] = top.indices.int().contiguous()
            tensors[f"top_logits_{i}"] = top.values.float().contiguous()
            tensors[f"log_sum_exp_{i}"] = logits.logsumexp(-1).float().contiguous()
            chosen, gaps = greedy(model, tokens, 64)
            sequences.append({"text": text, "text_tokens": ids, "tokens": tokens,
                              "greedy": chosen, "gaps": rounded(gaps)})
            print(name, i, repr(text), "->", repr(pieces.decode(chosen)))
        write_golden(folder, sequences, tensors)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out")
    parser.add_argument("names", nargs="*", help="variants, without --shipped")
    parser.add_argument("--shipped", metavar="MODELS", help="folder of target/ and draft/")
    arguments = parser.parse_args()
    if arguments.shipped:
        make_shipped(arguments.out, arguments.shipped)
    else:
        make_tiny(arguments.out, arguments.names)


if __name__ == "__main__":
    main()
