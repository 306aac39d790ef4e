#!/usr/bin/env python3
"""Automatic sizes against the best fixed setting in hindsight, by pair, temperature and threads.

    python3 bench/sizes.py                       # a table; an hour on a quiet machine of 2 cores
    python3 bench/sizes.py --quick               # fewer prompts and settings: ten minutes
    python3 bench/sizes.py --busy                # while another program takes one core

Runs build/bench/generate for the shipped pair and for one whose draft is weaker: its weights plus
Gaussian noise of 0.15 times each matrix's spread, which halves what it gets right. Fixed settings
are chains of 1 to 8 and DySpec trees of 1 to 32 nodes; those that a first round finds 15% behind
are not timed again. Last column: against the setting that is best on the other half of the
prompts. "either rule": by the acceptance rule that coppice chooses. Needs nothing beside Python.
"""
import argparse
import array
import contextlib
import glob
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CHAINS = [1, 2, 3, 4, 5, 6, 7, 8]
TREES = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32]
AUTOMATIC = ["dyspec:0", "dyspec:0:coupled", "dyspec:0:auto", "chain:0"]


def write_weaker_draft(source, folder, noise):
    """Copies a folder with one BF16 model.safetensors, noise added to its matrices."""
    for name in os.listdir(source):
        if not name.endswith(".safetensors"):
            shutil.copy(os.path.join(source, name), folder)
    with open(os.path.join(source, "model.safetensors"), "rb") as file:
        data = bytearray(file.read())
    (length,) = struct.unpack("<Q", data[:8])
    base = 8 + length
    generator = random.Random(1)
    for name, tensor in json.loads(data[8:base]).items():
        if name == "__metadata__" or len(tensor["shape"]) < 2:
            continue
        if tensor["dtype"] != "BF16":
            sys.exit(f"{source}: {name} is {tensor['dtype']}; only BF16 can be made weaker")
        begin, end = (base + offset for offset in tensor["data_offsets"])
        halves = array.array("H", bytes(data[begin:end]))
        values = array.array("f")
        values.frombytes(array.array("I", [h << 16 for h in halves]).tobytes())
        spread = noise * (sum(v * v for v in values) / len(values)) ** 0.5
        gauss = generator.gauss
        values = array.array("f", [v + spread * gauss(0.0, 1.0) for v in values])
        words = array.array("I")
        words.frombytes(values.tobytes())
        data[begin:end] = array.array("H", [(w + 0x8000) >> 16 for w in words]).tobytes()
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(data)


def drafts(folder, noise):
    """[(name, model folder)] of the two pairs; the weaker draft is written into `folder`."""
    shipped = os.path.join(ROOT, "models", "stories", "draft")
    weaker = os.path.join(folder, "weaker")
    os.mkdir(weaker)
    write_weaker_draft(shipped, weaker, noise)
    return [("shipped", shipped), ("weaker", weaker)]


def pinned(cores):
    return ["taskset", "-c", ",".join(map(str, cores))] if cores else []


def measure(arguments, draft, temperature, threads, out, cores=None, seconds=0,
            settings=None, costs=None):
    """Rows of what bench/generate measures, on `cores` alone if they are given; `costs`: a file
    that gets the costs that automatic sizes went by at first."""
    chains, trees = (CHAINS[1::2], TREES[2:9:2]) if arguments.quick else (CHAINS, TREES)
    settings = settings or ([f"chain:{n}" for n in chains] + [f"dyspec:{n}" for n in trees]
                            + AUTOMATIC)
    command = pinned(cores) + [
        os.path.join(arguments.build, "bench", "generate"),
        "--target", os.path.join(ROOT, "models", "stories", "target"), "--draft", draft,
        "--prompts", os.path.join(ROOT, "bench", "prompts", "prompts.jsonl"),
        "--temperature", str(temperature), "--threads", str(threads),
        "--dtype", arguments.dtype, "--settings", ",".join(settings), "--json", out,
        "--per-kind", "3" if arguments.quick else "6", "--rounds", str(arguments.rounds),
        "--seeds", str(arguments.seeds), "--seconds", str(seconds), "--race"]
    if arguments.cpu_seconds:
        command.append("--cpu-seconds")
    with tempfile.TemporaryDirectory() as cache:  # costs are measured anew
        done = subprocess.run(command, env={**os.environ, "XDG_CACHE_HOME": cache}, text=True,
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        tables = glob.glob(os.path.join(cache, "coppice", "costs-*.json"))
        if costs and tables:
            shutil.copy(tables[0], costs)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    with open(out) as file:
        return json.load(file)


def print_head():
    print("| draft | temperature | threads | plain, tokens/s | best fixed, tokens/s | dyspec auto |"
          " coupled | either rule | chain auto | dyspec auto, best chosen elsewhere |\n"
          "| --- | ---: | ---: | ---: | --- | --- | --- | --- | --- | ---: |", flush=True)


def print_rows(name, temperature, threads, rows):
    by = {row["setting"]: row for row in rows}
    automatic = ["dyspec auto", "dyspec auto coupled", "dyspec auto auto", "chain auto"]
    against = [by[setting].get("against_best") for setting in automatic]
    if None in against:  # plain decoding was best
        best, elsewhere = "plain", ""
        ratios = [f"{by[setting]['speedup']:.3f}" for setting in automatic]
    else:
        best = against[0]["setting"]
        ratios = [f"{one['ratio']:.3f} [{one['low']:.3f}, {one['high']:.3f}]" for one in against]
        elsewhere = f"{against[0]['chosen_elsewhere']:.3f}"
    print(f"| {name} | {temperature} | {threads} | {by['plain']['tokens_per_second']:.0f} |"
          f" {best}: {by[best]['tokens_per_second']:.0f} | {' | '.join(ratios)} | {elsewhere} |",
          flush=True)


@contextlib.contextmanager
def busy_core(cores=None):
    """Another program takes one core meanwhile, of `cores` if they are given."""
    with subprocess.Popen(pinned(cores) + ["sh", "-c", "while :; do :; done"]) as other:
        try:
            yield
        finally:
            other.kill()


def options(description):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--temperatures", default="0,0.8")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=1, help="texts of each prompt")
    parser.add_argument("--noise", type=float, default=0.15, help="of the weaker draft")
    parser.add_argument("--cpu-seconds", action="store_true",
                        help="CPU time in place of the clock: for one thread on a busy machine")
    parser.add_argument("--quick", action="store_true", help="fewer prompts and fixed settings")
    return parser


def main():
    parser = options(__doc__.splitlines()[0])
    parser.add_argument("--threads", default="1,2", help="counts, comma-separated")
    parser.add_argument("--seconds", type=float, default=0,
                        help="for each row of the table: no round that would end later is begun")
    parser.add_argument("--busy", action="store_true", help="keep one core busy meanwhile")
    arguments = parser.parse_args()

    print_head()
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        if arguments.busy:
            stack.enter_context(busy_core())
        for name, draft in drafts(folder, arguments.noise):
            for temperature in arguments.temperatures.split(","):
                for threads in arguments.threads.split(","):
                    print_rows(name, temperature, threads,
                               measure(arguments, draft, temperature, threads,
                                       os.path.join(folder, "figures.json"),
                                       seconds=arguments.seconds))


if __name__ == "__main__":
    main()
