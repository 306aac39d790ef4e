#!/usr/bin/env python3
"""Times vLLM on a GPU over the prompts of bench/generate or bench/batch: plain decoding and drafted
chains, bf16, on the same model folders, one text after another and many side by side.

    build/bench/generate --device cuda ... --prompts-out single.jsonl
    build/bench/batch --device cuda ... --prompts-out prompts.jsonl
    python3 bench/vllm_generate.py --target DIR --draft DIR --prompts prompts.jsonl \\
        --single-prompts single.jsonl --npl 1,8,64

Decode time is that of N + 1 new tokens less that of one. One text: medians over prompts, and
"overall" of all tokens by all seconds; several: the first prompts side by side, medians of 3 runs.

Every engine (plain decoding, and each length of the chain) has a process of its own. The processes
load side by side and measure in turn. In such a process vLLM schedules where it is called
(VLLM_ENABLE_V1_MULTIPROCESSING=0), which is faster with a draft than its default, a further process
that schedules; --own-process measures the default. Drafts are sampled ("probabilistic"): vLLM's
default, greedy drafts, accepts less above temperature 0. Needs vllm, made for 0.24.
"""

import argparse
import collections
import contextlib
import importlib.util
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

REPEATS = 3


def method_of(chain, arguments):
    name = f"chain {chain}" if chain else "plain"
    return name + ", own process" if arguments.own_process else name


def environment(arguments):
    """vLLM's settings, which it reads as it is imported; the caller's own come first."""
    settings = {"VLLM_WORKER_MULTIPROCESSING_METHOD": "spawn", "VLLM_NO_USAGE_STATS": "1",
                "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_HOST_IP": "127.0.0.1",
                "GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
    if importlib.util.find_spec("flashinfer") is None:
        settings["VLLM_USE_FLASHINFER_SAMPLER"] = "0"
    return {**settings, **os.environ,
            "VLLM_ENABLE_V1_MULTIPROCESSING": "1" if arguments.own_process else "0"}


def graph_sizes(npl, chain):
    """Rows of the passes that vLLM records: a step of the draft, a step of the target and the
    draft's first pass, for these numbers of texts and for fewer, since texts end one by one."""
    texts = [n for n in {1, 2, 4, *npl, *range(8, max(npl), 8)} if n <= max(npl)]
    rows = {n * each for n in texts for each in ((1, chain + 1, chain + 2) if chain else (1,))}
    return sorted({-(-n // (chain + 1)) * (chain + 1) for n in rows})  # vLLM takes no others


def load(arguments, chain):
    import vllm
    options = {}
    if chain:
        options["speculative_config"] = {
            "method": "draft_model", "model": arguments.draft, "num_speculative_tokens": chain,
            "draft_sample_method": "probabilistic"}
    llm = vllm.LLM(arguments.target, skip_tokenizer_init=True, dtype="bfloat16",
                   max_model_len=arguments.context, max_num_seqs=max(arguments.npl),
                   max_num_batched_tokens=16384, enable_prefix_caching=False,
                   gpu_memory_utilization=0.1,  # the memory of KV is set below
                   kv_cache_memory_bytes=int(arguments.kv_gib * 2**30), generation_config="vllm",
                   attention_config={"backend": "FLASH_ATTN"}, compilation_config={
                       "cudagraph_capture_sizes": graph_sizes(arguments.npl, chain)}, **options)
    cache = llm.llm_engine.vllm_config.cache_config
    needed = max(arguments.npl) * -(-(arguments.longest + chain) // cache.block_size)
    if cache.num_gpu_blocks < needed:
        sys.exit(f"vllm_generate.py: --kv-gib {arguments.kv_gib:g} makes {cache.num_gpu_blocks} "
                 f"blocks of KV, and {max(arguments.npl)} texts need {needed}; raise it")
    return llm, vllm


def count_drafts(llm):
    """Counts drafted chains and accepted tokens from now on; vLLM's own statistics would lengthen
    its steps. None if the scheduler is in another process or has no such function."""
    tally = collections.Counter()

    def count(stats, num_draft_tokens, num_accepted_tokens, **_):
        if num_draft_tokens:
            tally.update(drafts=1, accepted=num_accepted_tokens)

    core = getattr(llm.llm_engine.engine_core, "engine_core", None)
    scheduler = getattr(core, "scheduler", None)
    if not hasattr(scheduler, "make_spec_decoding_stats"):
        return None
    scheduler.make_spec_decoding_stats = count
    return tally


def seconds(llm, vllm, prompts, new_tokens, temperature):
    sampling = vllm.SamplingParams(temperature=temperature, max_tokens=new_tokens, ignore_eos=True,
                                   detokenize=False)
    asked = [{"prompt_token_ids": ids} for ids in prompts]
    start = time.perf_counter()
    done = llm.generate(asked, sampling, use_tqdm=False)
    taken = time.perf_counter() - start
    for text in done:
        written = len(text.outputs[0].token_ids)
        if written != new_tokens:
            sys.exit(f"vllm_generate.py: {written} tokens instead of {new_tokens}")
    return taken


def rate(llm, vllm, prompts, new_tokens, temperature):
    first = seconds(llm, vllm, prompts, 1, temperature)
    whole = seconds(llm, vllm, prompts, new_tokens + 1, temperature)
    return len(prompts) * new_tokens / (whole - first)


def rows_of(arguments, chain, prompts, single, llm, vllm):
    tally = count_drafts(llm) if chain else None
    for temperature in arguments.temperatures:
        for texts in arguments.npl:
            spread = single[::max(1, len(single) // arguments.limit)]
            groups = [[ids] for ids in spread] if texts == 1 else [prompts[:texts]]
            rate(llm, vllm, groups[0], arguments.new_tokens, temperature)  # warm-up
            if tally is not None:
                tally.clear()
            rates = [rate(llm, vllm, group, arguments.new_tokens, temperature)
                     for group in (groups * REPEATS if len(groups) == 1 else groups)]
            median = statistics.median(rates)
            row = {"method": method_of(chain, arguments), "temperature": temperature,
                   "texts": texts, "prompts": sum(map(len, groups)), "tokens_per_second": median,
                   "low": min(rates), "high": max(rates),
                   "overall": statistics.harmonic_mean(rates) if len(groups) > 1 else median}
            if tally:
                row["accepted_length"] = 1 + tally["accepted"] / tally["drafts"]
            yield row


def serve(arguments, chain, prompts, single):
    """Loads one engine, writes vLLM's version, waits for a line, then measures and writes rows."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # vLLM logs to standard output
    llm, vllm = load(arguments, chain)
    print(vllm.__version__, file=answers, flush=True)
    if sys.stdin.readline():
        for row in rows_of(arguments, chain, prompts, single, llm, vllm):
            print(json.dumps(row), file=answers, flush=True)


def measure(arguments, logs):
    """Starts every engine and yields its rows; says which engines are left out, and why."""
    settings = environment(arguments)
    cache = pathlib.Path(os.environ.get("VLLM_CACHE_ROOT", "~/.cache/vllm")).expanduser()
    engines = {}
    try:
        start = time.monotonic()
        for chain in dict.fromkeys([0, *arguments.chains]):
            with open(logs / f"chain_{chain}.log", "w") as log:
                # Engines that start at once may not share vLLM's caches of compiled code.
                engines[chain] = subprocess.Popen(
                    [sys.executable, __file__, *sys.argv[1:], "--engine", str(chain)], text=True,
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                    env={**settings, "VLLM_CACHE_ROOT": str(cache / f"chain_{chain}")})
        ready = {chain: engine.stdout.readline() for chain, engine in engines.items()}
        loaded = [version.strip() for version in ready.values() if version]
        print(f"vLLM {' '.join(set(loaded))}: {len(loaded)} engines loaded in "
              f"{time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
        for chain, engine in engines.items():
            if ready[chain]:
                with contextlib.suppress(BrokenPipeError):  # ended meanwhile
                    engine.stdin.write("measure\n")
                    engine.stdin.flush()
                yield from map(json.loads, engine.stdout)
            if engine.wait() != 0:
                log = (logs / f"chain_{chain}.log").read_text()[-3000:]
                print(f"vLLM {method_of(chain, arguments)} is left out: its engine ended with "
                      f"{engine.returncode}:\n{log}", file=sys.stderr, flush=True)
    finally:
        for engine in engines.values():
            engine.kill()


def read_prompts(path):
    with open(path) as file:
        return [json.loads(line)["tokens"] for line in file]


def counts(text):
    return [int(word) for word in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", required=True)
    parser.add_argument("--draft", required=True)
    parser.add_argument("--prompts", required=True)
    parser.add_argument("--single-prompts",
                        help="others than --prompts for one text after another")
    parser.add_argument("--new-tokens", type=int, default=128)
    parser.add_argument("--limit", type=int, default=24,
                        help="prompts, spread over the file, for one text after another")
    parser.add_argument("--npl", type=counts, default=[1], help="texts side by side, like 1,8,64")
    parser.add_argument("--chains", type=int, nargs="*", default=[3, 5])
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 0.6])
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--kv-gib", type=float, default=10, help="KV memory of each engine")
    parser.add_argument("--own-process", action="store_true",
                        help="vLLM's default: scheduling in a further process")
    parser.add_argument("--logs", help="folder for the engines' logs")
    parser.add_argument("--json")
    parser.add_argument("--engine", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if importlib.util.find_spec("vllm") is None:
        sys.exit("vllm_generate.py: no module vllm; install it or name its folder in PYTHONPATH")
    prompts = read_prompts(arguments.prompts)
    single = read_prompts(arguments.single_prompts) if arguments.single_prompts else prompts
    if min(arguments.npl) < 1 or len(prompts) < max(arguments.npl):
        parser.error(f"--npl: {len(prompts)} prompts are there for 1 to {len(prompts)} texts")
    arguments.longest = max(map(len, prompts + single)) + arguments.new_tokens + 1
    if arguments.longest > arguments.context:
        parser.error(f"--context {arguments.context}: the longest text has {arguments.longest} "
                     "tokens")
    if arguments.engine is not None:
        serve(arguments, arguments.engine, prompts, single)
        return

    rows = []
    with tempfile.TemporaryDirectory() as folder:
        logs = pathlib.Path(arguments.logs or folder)
        logs.mkdir(parents=True, exist_ok=True)
        for row in measure(arguments, logs):
            rows.append(row)
            length = row.get("accepted_length")
            print("vLLM {method}, {texts} texts, temperature {temperature}: {tokens_per_second:.1f}"
                  " tok/s ({low:.1f} to {high:.1f})".format(**row) +
                  (f", accepted length {length:.2f}" if length else ""), flush=True)
            if arguments.json:
                pathlib.Path(arguments.json).write_text(json.dumps(rows, indent=1) + "\n")
    if not rows:
        sys.exit("vllm_generate.py: vLLM wrote nothing")


if __name__ == "__main__":
    main()
