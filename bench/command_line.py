#!/usr/bin/env python3
"""Batches from the command line: `coppice generate --batch` with speculation and without, in turn.

    python3 bench/command_line.py --target DIR --draft DIR [--device cuda] [--prompts 8,64,200]

Each run is a process of its own, so its first second counts: tokens/s are those that the command
prints, from the first prompt to the last token, without the models' load. The first round starts
without measured costs. Prompts are those of bench/prompts, in an order that mixes their kinds;
beyond 100, each has a chapter's number before it. Needs nothing beside Python.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def write_prompts(path, count):
    with open(os.path.join(ROOT, "bench", "prompts", "prompts.jsonl")) as lines:
        prompts = [json.loads(line)["prompt"] for line in lines]
    with open(path, "w") as out:
        for i in range(count):
            prompt = prompts[i * 7 % len(prompts)]
            if i >= len(prompts):
                prompt = f"Chapter {i}. {prompt}"
            out.write(json.dumps({"prompt": prompt}) + "\n")


def printed_speed(command, **more):
    """The tokens/s that a command with --stats prints; `more` are options of subprocess.run."""
    run = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False, **more)
    speed = re.search(r"speed +([0-9.]+) tokens/s", run.stderr)
    if run.returncode != 0 or speed is None:
        raise SystemExit(f"{' '.join(command)} failed:\n{run.stderr}")
    return float(speed.group(1))


def tokens_per_second(options, prompts, policy, cache):
    command = [options.coppice, "generate", "--batch", prompts, "--policy", policy, "--stats",
               "--target", options.target, "--draft", options.draft, "--device", options.device,
               "--temperature", str(options.temperature), "--seed", "1", "--ignore-eos",
               "--max-new-tokens", str(options.new_tokens)]
    return printed_speed(command, env=dict(os.environ, XDG_CACHE_HOME=cache))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    stories = os.path.join(ROOT, "models", "stories")
    parser.add_argument("--coppice", default=os.path.join(ROOT, "build", "coppice"))
    parser.add_argument("--target", default=os.path.join(stories, "target"))
    parser.add_argument("--draft", default=os.path.join(stories, "draft"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--prompts", default="8,64,200", help="how many, a list")
    parser.add_argument("--temperature", type=float, default=0.6)
    parser.add_argument("--new-tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    counts = [int(count) for count in options.prompts.split(",")]
    print("| prompts | plain, tokens/s | speculation | ratio, median [least, most] |")
    print("| ---: | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory() as folder:
        for count in counts:
            prompts = os.path.join(folder, f"{count}.jsonl")
            write_prompts(prompts, count)
            cache = os.path.join(folder, f"cache{count}")
            rounds = [(tokens_per_second(options, prompts, "none", cache),
                       tokens_per_second(options, prompts, "dyspec", cache))
                      for _ in range(options.rounds)]
            ratios = [speculation / plain for plain, speculation in rounds]
            plain, speculation = (statistics.median(side) for side in zip(*rounds))
            print(f"| {count} | {plain:.0f} | {speculation:.0f} | {statistics.median(ratios):.2f} "
                  f"[{min(ratios):.2f}, {max(ratios):.2f}] |", flush=True)


if __name__ == "__main__":
    main()
