#!/usr/bin/env python3
"""Times Hugging Face transformers on the prompts of bench/generate: plain decoding and assisted
generation, bf16 on a GPU, on the same model folders.

    build/bench/generate --device cuda ... --prompts-out prompts.jsonl
    python3 bench/hf_generate.py --target DIR --draft DIR --prompts prompts.jsonl

Decode time is that of N new tokens less that of one, per prompt; medians over prompts.
"""

import argparse
import json
import statistics
import sys
import time

import torch
from transformers import AutoModelForCausalLM, logging


def load(folder):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16, device_map="cuda")
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0
    model.generation_config.stop_strings = None  # wants a tokenizer
    return model.eval()


def seconds(model, ids, new_tokens, options):
    torch.cuda.synchronize()
    start = time.perf_counter()
    out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=new_tokens,
                         min_new_tokens=new_tokens, **options)
    torch.cuda.synchronize()
    taken = time.perf_counter() - start
    if out.shape[1] != ids.shape[1] + new_tokens:
        sys.exit(f"hf_generate.py: {out.shape[1] - ids.shape[1]} tokens instead of {new_tokens}")
    return taken


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", required=True)
    parser.add_argument("--draft", required=True)
    parser.add_argument("--prompts", required=True)
    parser.add_argument("--new-tokens", type=int, default=128)
    parser.add_argument("--limit", type=int, default=24, help="prompts, spread over the file")
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 0.6])
    parser.add_argument("--static", action="store_true",
                        help="also plain decoding with a static cache, compiled")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    logging.set_verbosity_error()
    if not torch.cuda.is_available():
        sys.exit("hf_generate.py: PyTorch sees no GPU; run it where there is one")

    with open(arguments.prompts) as file:
        prompts = [json.loads(line) for line in file]
    step = max(1, len(prompts) // arguments.limit)
    prompts = [torch.tensor([p["tokens"]], device="cuda") for p in prompts[::step]]
    target, draft = load(arguments.target), load(arguments.draft)

    methods = {"plain": {}, "assisted": {"assistant_model": draft}}
    if arguments.static:
        methods["plain, static and compiled"] = {"cache_implementation": "static"}
    rows = []
    for temperature in arguments.temperatures:
        sampling = {"do_sample": False}
        if temperature > 0:
            sampling = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0}
        for name, options in methods.items():
            options = {**options, **sampling}
            torch.manual_seed(0)
            # Compilation takes two texts to settle.
            for _ in range(2 if "cache_implementation" in options else 1):
                seconds(target, prompts[0], arguments.new_tokens, options)
            rates = []
            for ids in prompts:
                first = seconds(target, ids, 1, options)
                rates.append((arguments.new_tokens - 1) /
                             (seconds(target, ids, arguments.new_tokens, options) - first))
            row = {"method": name, "temperature": temperature, "prompts": len(prompts),
                   "tokens_per_second": statistics.median(rates), "low": min(rates),
                   "high": max(rates), "overall": statistics.harmonic_mean(rates)}
            rows.append(row)
            print("transformers {method}, temperature {temperature}: {tokens_per_second:.1f} tok/s "
                  "({low:.1f} to {high:.1f}, {prompts} prompts)".format(**row), flush=True)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
