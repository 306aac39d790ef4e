#!/usr/bin/env python3
"""Times coppice, transformers, vLLM and llama.cpp on a GPU alternately, on one pair and its prompts.

    python3 bench/rivals.py --target DIR --draft DIR --llama-source LLAMA_CPP \\
        --llama-libraries LLAMA_CPP/build

Every round runs each program once, in rotating order; the table gives the median over rounds, the
least and the largest, and how many times as fast the best setting of coppice was in the same round.
Tokens/s are those of decoding, all tokens by all seconds, one text of each prompt a round;
bench/generate, hf_generate.py, vllm_generate.py and llama_cpp/on_gpu.py do the work. Programs that
are not there or fail are left out, and said to be.

With --texts 1,8,64 many texts are written side by side instead, by bench/batch, vllm_generate.py,
and llama_cpp/batched.py with llama.cpp's own programs in --llama-programs (LLAMA_CPP/build/bin).
"""

import argparse
import collections
import importlib.util
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent


class Failed(Exception):
    pass


def run(command, name):
    start = time.monotonic()
    try:
        done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)
    except OSError as error:
        raise Failed(f"{name}: {error}") from None
    if done.returncode != 0:
        raise Failed(f"{name} ended with {done.returncode}:\n{done.stdout}")
    for line in done.stdout.splitlines():
        if "left out" in line:
            print(f"{name}: {line}", flush=True)
    print(f"{name}: {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)


def coppice_rows(arguments, folder):
    """Rows {method, temperature, tokens_per_second}; also writes the prompts for the others."""
    rows = []
    for temperature in arguments.temperatures:
        out = folder / "coppice.json"
        run([arguments.coppice, "--device", "cuda", "--target", arguments.target, "--draft",
             arguments.draft, "--prompt-tokens", "128", "--per-kind", arguments.per_kind,
             "--rounds", 1, "--max-new-tokens", arguments.new_tokens, "--temperature", temperature,
             "--settings", arguments.settings, "--prompts-out", folder / "prompts.jsonl", "--json",
             out], f"coppice at {temperature:g}")
        rows += [{"method": row["setting"], "temperature": temperature,
                  "tokens_per_second": row["tokens_per_second"]}
                 for row in json.loads(out.read_text())]
    return rows


def coppice_batch_rows(arguments, folder):
    """The same of many texts side by side, with "texts"."""
    rows = []
    for temperature in arguments.temperatures:
        out = folder / "coppice.json"
        run([arguments.coppice_batch, "--device", arguments.device, "--target", arguments.target,
             "--draft", arguments.draft, "--npp", 128, "--ntg", arguments.new_tokens, "--npl",
             ",".join(map(str, arguments.texts)), "--rounds", 1, "--temperature", temperature,
             "--settings", arguments.settings, "--prompts-out", folder / "prompts.jsonl", "--json",
             out], f"coppice at {temperature:g}")
        rows += [{"method": row["setting"], "temperature": temperature, "texts": row["pl"],
                  "tokens_per_second": row["speed_tg"]}
                 for row in json.loads(out.read_text()) if not row["setting"].endswith("in turns")]
    return rows


def llama_batch_rows(arguments, folder):
    out = folder / "rows.json"
    run([sys.executable, HERE / "llama_cpp/batched.py", "--target", arguments.target, "--draft",
         arguments.draft, "--prompts", folder / "prompts.jsonl", "--programs",
         arguments.llama_programs, "--npl", ",".join(map(str, arguments.texts)), "--ntg",
         arguments.new_tokens, "--temperatures", *arguments.temperatures, "--chains",
         *arguments.llama_chains, "--gpu-layers", 0 if arguments.device == "cpu" else 999, "--gguf",
         folder / "gguf", "--json", out], "llama.cpp")
    return json.loads(out.read_text())


def script_rows(script, options, arguments, folder, name):
    out = folder / "rows.json"
    run([sys.executable, HERE / script, "--target", arguments.target, "--draft", arguments.draft,
         "--prompts", folder / "prompts.jsonl", "--limit", 4 * arguments.per_kind, "--new-tokens",
         arguments.new_tokens, "--temperatures", *arguments.temperatures, "--json", out, *options],
        name)
    return [{**row, "tokens_per_second": row["overall"]} for row in json.loads(out.read_text())]


def missing(modules):
    return [name for name in modules if importlib.util.find_spec(name) is None]


def add_vllm(sides, options, arguments, folder):
    if missing(["vllm"]):
        print("vLLM is left out: no module vllm")
    else:
        options = ["--chains", *arguments.vllm_chains, *options]
        sides["vLLM"] = lambda: script_rows("vllm_generate.py", options, arguments, folder, "vLLM")


def batch_programs(arguments, folder):
    """As programs(), of many texts side by side."""
    sides = {"coppice": lambda: coppice_batch_rows(arguments, folder)}
    if arguments.device == "cuda":
        # The others write one text after the first prompt alone, too.
        add_vllm(sides, ["--npl", ",".join(map(str, arguments.texts)), "--limit", 1], arguments,
                 folder)
    lacking = missing(["numpy", "gguf"])
    if not arguments.llama_programs:
        print("llama.cpp is left out: --llama-programs does not name the folder of its programs")
    elif lacking:
        print(f"llama.cpp is left out: no module {', '.join(lacking)}")
    else:
        sides["llama.cpp"] = lambda: llama_batch_rows(arguments, folder)
    return sides


def programs(arguments, folder):
    """By name, what times it; coppice first, since it writes the prompts."""
    sides = {"coppice": lambda: coppice_rows(arguments, folder)}
    lacking = missing(["torch", "transformers", "accelerate"])
    if lacking:
        print(f"transformers is left out: no module {', '.join(lacking)}")
    else:
        sides["transformers"] = lambda: script_rows("hf_generate.py", ["--static"], arguments,
                                                    folder, "transformers")
    add_vllm(sides, [], arguments, folder)
    lacking = missing(["numpy", "gguf"])
    if not (arguments.llama_source and arguments.llama_libraries):
        print("llama.cpp is left out: --llama-source and --llama-libraries do not name it")
    elif lacking:
        print(f"llama.cpp is left out: no module {', '.join(lacking)}")
    else:
        options = ["--source", arguments.llama_source, "--libraries", arguments.llama_libraries,
                   "--decode", folder / "decode", "--gguf", folder / "gguf", "--flash", 1,
                   "--chains", *arguments.llama_chains]
        sides["llama.cpp"] = lambda: script_rows("llama_cpp/on_gpu.py", options, arguments, folder,
                                                 "llama.cpp")
    return sides


def print_table(every):
    """`every`: rows {round, program, method, temperature, texts, tokens_per_second}."""
    rates = collections.defaultdict(dict)  # of a setting, by round
    best = {}                              # of coppice, by what is asked for and round
    for row in every:
        turn, rate = row["round"], row["tokens_per_second"]
        asked = row["temperature"], row["texts"]
        rates[asked, row["program"], row["method"]][turn] = rate
        if row["program"] == "coppice":
            best[asked, turn] = max(rate, best.get((asked, turn), 0.0))
    print(f"{'temperature':<12}{'texts':<6}{'program':<14}{'setting':<28}{'tokens/s':>9}"
          f"{'least':>9}{'largest':>9}{'best / it':>11}")
    for ((temperature, texts), program, method), by_round in sorted(rates.items()):
        values = list(by_round.values())
        ratios = [best[(temperature, texts), turn] / rate for turn, rate in by_round.items()
                  if ((temperature, texts), turn) in best]
        ratio = f"{statistics.median(ratios):.2f}" if ratios else "-"
        print(f"{temperature:<12g}{texts:<6}{program:<14}{method:<28}"
              f"{statistics.median(values):>9.1f}{min(values):>9.1f}{max(values):>9.1f}{ratio:>11}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", required=True)
    parser.add_argument("--draft", required=True)
    parser.add_argument("--coppice", default="build/bench/generate",
                        help="bench/generate as built")
    parser.add_argument("--texts", type=lambda text: [int(word) for word in text.split(",")],
                        help="many texts side by side, by their numbers, like 1,8,64")
    parser.add_argument("--coppice-batch", default="build/bench/batch",
                        help="with --texts: bench/batch as built")
    parser.add_argument("--llama-programs", help="with --texts: folder of llama.cpp's programs")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"], help="with --texts")
    parser.add_argument("--settings", default="chain:0,dyspec:0,dyspec:0:coupled")
    parser.add_argument("--llama-source", help="llama.cpp's source tree, as on_gpu.py wants it")
    parser.add_argument("--llama-libraries", help="where its static libraries are")
    parser.add_argument("--llama-chains", type=int, nargs="+", default=[3, 4, 6, 8, 12])
    parser.add_argument("--vllm-chains", type=int, nargs="+", default=[3, 5])
    parser.add_argument("--per-kind", type=int, default=1, help="prompts of each of four kinds")
    parser.add_argument("--new-tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 0.6])
    parser.add_argument("--scratch", help="folder for llama.cpp's copies of the models")
    parser.add_argument("--json", help="file for every round's rows, written after each program")
    arguments = parser.parse_args()

    every = []
    with tempfile.TemporaryDirectory(dir=arguments.scratch) as folder:
        sides = (batch_programs if arguments.texts else programs)(arguments, pathlib.Path(folder))
        names = list(sides)
        for turn in range(arguments.rounds):
            first = turn % len(names)
            for name in names[first:] + names[:first]:
                if name not in sides:
                    continue
                try:
                    rows = sides[name]()
                except Failed as failure:
                    if name == "coppice" and not every:
                        sys.exit(f"rivals.py: {failure}")
                    print(f"{name} is left out from round {turn + 1} on: {failure}")
                    del sides[name]
                    continue
                every += [{"round": turn, "program": name, "texts": 1, **row} for row in rows]
                if arguments.json:
                    pathlib.Path(arguments.json).write_text(json.dumps(every, indent=1) + "\n")
    print_table(every)


if __name__ == "__main__":
    main()
