#!/usr/bin/env python3
"""Decoding speed of coppice against llama.cpp, interleaved in one run.

coppice keeps weights as they are stored and computes in F32. llama.cpp runs the same weights as BF16 and
widened to F32, and, as another model, quantised to Q8_0; all sides of a prompt run one after the other.

Run with a Python that has llama-cpp-python, gguf, sentencepiece and numpy; see README.md.
"""

import argparse
import contextlib
import dataclasses
import importlib.metadata
import importlib.util
import itertools
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

try:
    import numpy as np
    import sentencepiece

    import to_gguf
except ModuleNotFoundError as missing:
    sys.exit(f"compare.py: {missing}; README.md beside it says which Python packages it needs")

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TICK = os.sysconf("SC_CLK_TCK")
CORES = os.cpu_count()
DTYPES = ["bf16", "f32", "q8_0"]  # of llama.cpp's files
COPPICE_PLAIN, COPPICE_TREE = "coppice plain", "coppice dyspec auto"


def llama_plain(dtype):
    return f"llama.cpp {dtype} plain"


def llama_chain(dtype):
    return f"llama.cpp {dtype} chain"


def log(*words):
    print(*words, file=sys.stderr, flush=True)


# ---- a machine that others use too ---------------------------------------------------------

def busy_seconds():
    """CPU time that anybody has used since boot, host's theft included."""
    with open("/proc/stat") as f:
        user, nice, system, _, _, irq, softirq, steal = map(int, f.readline().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / TICK


def own_seconds():
    """CPU time of this process and its finished children."""
    both = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(u.ru_utime + u.ru_stime for u in both)


class Watch:
    """Share of all cores that other processes took while the block ran."""

    def __enter__(self):
        self.start = time.monotonic(), busy_seconds(), own_seconds()
        return self

    def __exit__(self, *_):
        wall = time.monotonic() - self.start[0]
        foreign = (busy_seconds() - self.start[1]) - (own_seconds() - self.start[2])
        self.share = max(0.0, foreign) / (wall * CORES)


def wait_for_quiet(limit, patience):
    """Returns once others leave the cores alone for a quarter of a second, or patience ends."""
    end = time.monotonic() + patience
    while True:
        with Watch() as watch:
            time.sleep(0.25)
        if watch.share <= limit or time.monotonic() > end:
            return
        time.sleep(0.5)


# ---- the two programs ----------------------------------------------------------------------

@dataclasses.dataclass(frozen=True)
class Config:
    """How llama.cpp runs."""
    flash: int = 1
    kv: str = "f16"
    sampler: str = "host"
    repack: int = 1

    def __str__(self):
        return (f"flash attention {'on' if self.flash else 'off'}, KV {self.kv}, greedy sampler in {self.sampler}"
                + ("" if self.repack else ", weights not repacked"))


class RunFailed(Exception):
    """llama.cpp ended with an error; says how."""


def llama_paths(folder):
    """Folders of llama.cpp's headers and libraries."""
    if folder is not None:
        return pathlib.Path(folder, "include").resolve(), pathlib.Path(folder, "lib").resolve()
    spec = importlib.util.find_spec("llama_cpp")
    if spec is None:
        raise SystemExit("this Python has no llama_cpp; see README.md")
    package = pathlib.Path(spec.origin).parent
    for include in (package.parent / "include", package / "include"):
        if (include / "llama.h").exists():
            return include, package / "lib"
    raise SystemExit(f"no llama.h beside {package}; install llama-cpp-python from its source package")


class LlamaCpp:
    def __init__(self, folder, threads, installed):
        self.folder, self.threads = folder, threads
        self.program = folder / "decode"
        include, lib = llama_paths(installed)
        subprocess.run([os.environ.get("CC", "cc"), "-std=gnu11", "-O2", str(HERE / "decode.c"), f"-I{include}",
                        f"-L{lib}", "-lllama", "-lggml", "-lggml-base", f"-Wl,-rpath,{lib}", "-o",
                        str(self.program)], check=True)
        self.system = subprocess.run([str(self.program), "--system"], capture_output=True, text=True,
                                     check=True).stdout.splitlines()

    def convert(self, name, model):
        for dtype in DTYPES:
            to_gguf.convert(model, self.folder / f"{name}-{dtype}.gguf", dtype)

    def run(self, lines, dtype, config, new_tokens, chain=0):
        """One process; a result for each line."""
        command = [str(self.program), "--model", str(self.folder / f"target-{dtype}.gguf"), "--threads",
                   str(self.threads), "--new", str(new_tokens), "--flash", str(config.flash), "--kv", config.kv,
                   "--repack", str(config.repack), "--sampler", "host" if chain else config.sampler]
        if chain:
            command += ["--draft", str(self.folder / f"draft-{dtype}.gguf"), "--chain", str(chain)]
        done = subprocess.run(command, input="\n".join(lines) + "\n", capture_output=True, text=True)
        if done.returncode != 0:
            how = f"signal {-done.returncode}" if done.returncode < 0 else f"exit {done.returncode}"
            said = " ".join(done.stderr.split())[-300:] or "nothing on stderr"
            raise RunFailed(f"{' '.join(command)}: {how}, {said}")
        return [json.loads(row) for row in done.stdout.splitlines()]


class Coppice:
    def __init__(self, program, target, draft, threads):
        self.program, self.target, self.draft, self.threads = program, target, draft, threads
        self.version = subprocess.run([program, "--version"], capture_output=True, text=True,
                                      check=True).stdout.strip()

    def run(self, ids, new_tokens, tree):
        command = [self.program, "generate", "--target", self.target, "--prompt-ids", ",".join(map(str, ids)),
                   "--max-new-tokens", str(new_tokens), "--temperature", "0", "--ignore-eos", "--device", "cpu",
                   "--threads", str(self.threads), "--format", "json"]
        draft, policy = (self.draft, "dyspec") if tree else ("none", "none")
        command += ["--draft", draft, "--policy", policy]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
        result = json.loads(done.stdout)
        if len(result["tokens"]) != new_tokens:
            raise SystemExit(f"coppice wrote {len(result['tokens'])} tokens, asked for {new_tokens}")
        return result


# ---- measuring -----------------------------------------------------------------------------

class Bench:
    def __init__(self, args, folder):
        self.args = args
        self.llama = LlamaCpp(folder, args.threads, args.llama)
        self.llama.convert("target", args.target)
        self.coppice = None
        if args.coppice != "none":
            if not os.access(args.coppice, os.X_OK):
                raise SystemExit(f"{args.coppice} is not there; build it, or give --coppice FILE or --coppice none")
            self.coppice = Coppice(args.coppice, args.target, args.draft, args.threads)
        self.tree = args.draft != "none"
        if self.tree:
            self.llama.convert("draft", args.draft)
        self.prompts = self.read_prompts()
        # What llama.cpp runs with, by type; a type, or its chain, that fails has none.
        self.config, self.chain, self.chain_config = {}, {}, {}
        self.disturbed, self.failed = 0, []

    def read_prompts(self):
        """[(kind, token ids with BOS)], the first few of each kind."""
        processor = sentencepiece.SentencePieceProcessor(model_file=os.path.join(self.args.target, "tokenizer.model"))
        bos = json.loads(pathlib.Path(self.args.target, "config.json").read_text())["bos_token_id"]
        kinds = {}
        for line in pathlib.Path(self.args.prompts).read_text().splitlines():
            row = json.loads(line)
            kinds.setdefault(row["kind"], []).append((row["kind"], [bos] + processor.encode(row["prompt"])))
        return [p for kind in kinds.values() for p in kind[:self.args.per_kind]]

    @contextlib.contextmanager
    def quiet(self):
        wait_for_quiet(self.args.foreign, self.args.patience)
        with Watch() as watch:
            yield watch

    def undisturbed(self, measure):
        """measure()'s result from a moment when others left the cores alone; of several failed
        attempts, the least disturbed."""
        best = None
        for _ in range(self.args.attempts):
            with self.quiet() as watch:
                result = measure()
            if best is None or watch.share < best[0]:
                best = watch.share, result
            if watch.share <= self.args.foreign:
                break
        else:
            self.disturbed += 1
        return best[1]

    def fails(self, what, error):
        self.failed.append(f"{what} failed: {error}")
        log(self.failed[-1])

    def sweep(self, title, choices, run):
        """The choice with the highest median speed over some prompts, tried in turn; None if none
        runs. A choice that fails is named and left out."""
        lines = [ids_line(ids) for _, ids in self.prompts[::max(1, len(self.prompts) // 8)]]
        rounds = self.args.rounds
        if len(choices) == 1:  # whether it runs at all
            lines, rounds = lines[:1], 1
        speeds = {c: [] for c in choices}
        for _ in range(rounds):
            for choice in list(speeds):
                try:
                    rows = self.undisturbed(lambda: run(lines, choice))
                    speeds[choice] += [self.args.new_tokens / row["seconds"] for row in rows]
                except RunFailed as error:
                    self.fails(f"{title}, {choice}", error)
                    del speeds[choice]
        medians = {c: statistics.median(s) for c, s in speeds.items()}
        if len(choices) > 1 and medians:
            print(f"\n{title}, tokens/s (median of {len(lines)} prompts x {rounds}):")
            for choice, speed in medians.items():
                print(f"  {speed:7.0f}  {choice}")
            sys.stdout.flush()
        return max(medians, key=medians.get) if medians else None

    def choose_configs(self):
        for dtype in DTYPES:
            choices = [Config(*c) for c in itertools.product((0, 1), ("f16", "f32"), ("host", "graph"))]
            if self.args.no_trials:
                choices = [Config()]
            config = None
            for of in (choices, [dataclasses.replace(c, repack=0) for c in choices]):
                config = config or self.sweep(
                    f"llama.cpp {dtype}", of, lambda lines, c: self.llama.run(lines, dtype, c, self.args.new_tokens))
            if config is None:
                continue
            self.config[dtype] = config
            if not self.tree:
                continue
            for of in dict.fromkeys((config, dataclasses.replace(config, repack=0))):
                length = self.sweep(
                    f"llama.cpp {dtype}, length of the drafted chain", self.args.chains,
                    lambda lines, n: self.llama.run(lines, dtype, of, self.args.new_tokens, n))
                if length is not None:
                    self.chain[dtype], self.chain_config[dtype] = length, of
                    break

    def sides(self):
        """{name: how to run it}; how takes the prompt's ids and returns tokens/s and tokens."""
        count, sides = self.args.new_tokens, {}

        def llama(dtype, config, chain):
            def run(ids):
                (result,) = self.llama.run([ids_line(ids)], dtype, config, count, chain)
                return count / result["seconds"], result["tokens"]
            return run

        def coppice(tree):
            def run(ids):
                result = self.coppice.run(ids, count, tree)
                return result["decode_tokens_per_second"], result["tokens"]
            return run

        if self.coppice is not None:
            sides[COPPICE_PLAIN] = coppice(False)
            if self.tree and not self.args.no_dyspec:
                sides[COPPICE_TREE] = coppice(True)
        for dtype, config in self.config.items():
            sides[llama_plain(dtype)] = llama(dtype, config, 0)
        for dtype, config in self.chain_config.items():
            sides[llama_chain(dtype)] = llama(dtype, config, self.chain[dtype])
        return sides

    def measure(self):
        """{side: speeds[prompt, round]} and {side: tokens of each prompt}."""
        sides = self.sides()
        shape = len(self.prompts), self.args.rounds
        speeds = {s: np.zeros(shape) for s in sides}
        tokens = {s: [None] * shape[0] for s in sides}
        for n in range(self.args.rounds):
            for i, (_, ids) in enumerate(self.prompts):
                names = list(speeds)
                first = (i + n) % len(names)
                order = names[first:] + names[:first]
                results = self.undisturbed(lambda: {s: self.run_side(s, sides[s], ids) for s in order})
                for side, result in results.items():
                    if result is None:
                        del speeds[side], tokens[side]
                        continue
                    speeds[side][i, n], tokens[side][i] = result
            log(f"round {n + 1} of {self.args.rounds} done")
        return speeds, tokens

    def run_side(self, name, run, ids):
        """None if it failed, which is named."""
        try:
            return run(ids)
        except RunFailed as error:
            self.fails(name, error)
            return None

    def check_tokens(self, tokens, dtype, config):
        """(tokens, differing, largest gap): coppice's plain tokens fed to llama.cpp, which would have
        picked others where it says so; the gap is how far coppice's logit is below the best there."""
        lines = [f"{ids_line(ids)} : {ids_line(made)}" for (_, ids), made in zip(self.prompts, tokens)]
        rows = self.llama.run(lines, dtype, config, self.args.new_tokens)
        gaps = [gap for row in rows for _, gap in row["differing"]]
        return sum(row["checked"] for row in rows), len(gaps), max(gaps, default=0.0)


def ids_line(ids):
    return " ".join(map(str, ids))


def version_of(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "?"


def spread(ratios):
    low, middle, high = np.percentile(ratios, [10, 50, 90])
    return {"median": middle, "p10": low, "p90": high}


def print_summary(bench, out):
    """The table of bench/README.md."""
    rows = [("plain decoding: coppice / llama.cpp", COPPICE_PLAIN, llama_plain),
            ("dyspec auto / llama.cpp with its best drafted chain", COPPICE_TREE, llama_chain),
            ("dyspec auto / llama.cpp plain", COPPICE_TREE, llama_plain)]
    print("\n| median over prompts (10th to 90th percentile) | "
          + " | ".join(dtype.upper() for dtype in DTYPES) + " |\n|---|" + "---:|" * len(DTYPES))
    for title, over, under in rows:
        ratios = [out.get(f"{over} / {under(dtype)}") for dtype in DTYPES]
        if any(ratios):
            print(f"| {title} | " + " | ".join(f"{r['median']:.2f} ({r['p10']:.2f} to {r['p90']:.2f})" if r
                                               else "failed" for r in ratios) + " |")
    if bench.tree:
        print("| best length of the chain | "
              + " | ".join(str(bench.chain.get(d, "failed")) for d in DTYPES) + " |")


def report(bench, speeds, tokens):
    """Prints the tables and returns what they say."""
    kinds = [kind for kind, _ in bench.prompts]
    out = {}
    print("\n| | tokens/s | 10th to 90th |\n|---|---:|---:|")
    for side, values in speeds.items():
        s = out[side] = spread(np.median(values, axis=1))
        print(f"| {side} | {s['median']:.0f} | {s['p10']:.0f} to {s['p90']:.0f} |")

    pairs = [(COPPICE_TREE, COPPICE_PLAIN)]
    for dtype in DTYPES:
        plain, chain = llama_plain(dtype), llama_chain(dtype)
        pairs += [(COPPICE_PLAIN, plain), (chain, plain), (COPPICE_TREE, chain), (COPPICE_TREE, plain)]
    pairs = [(over, under) for over, under in pairs if over in speeds and under in speeds]
    if pairs:
        print("\n| ratio of a prompt's tokens/s | median | 10th to 90th | "
              + " | ".join(dict.fromkeys(kinds)) + " | sum of times | rounds |")
        print("|---|---:|---:|" + "---:|" * (len(set(kinds)) + 2))
    for over, under in pairs:
        each = speeds[over] / speeds[under]
        ratios, rounds = np.median(each, axis=1), np.median(each, axis=0)
        s = spread(ratios)
        of_kinds = {k: float(np.median([r for r, kind in zip(ratios, kinds) if kind == k]))
                    for k in dict.fromkeys(kinds)}
        total = [(1 / np.median(speeds[side], axis=1)).sum() for side in (under, over)]
        out[f"{over} / {under}"] = {**s, **of_kinds, "sum of times": total[0] / total[1],
                                    "rounds": rounds.tolist()}
        print(f"| {over} / {under} | {s['median']:.2f} | {s['p10']:.2f} to {s['p90']:.2f} | "
              + " | ".join(f"{r:.2f}" for r in of_kinds.values())
              + f" | {total[0] / total[1]:.2f} | {', '.join(f'{r:.2f}' for r in rounds)} |")

    if bench.coppice is not None:
        print_summary(bench, out)
    print()
    for over, under in pairs:
        same = sum(a == b for a, b in zip(tokens[over], tokens[under]))
        print(f"{over} and {under} wrote the same {bench.args.new_tokens} tokens on "
              f"{same} of {len(bench.prompts)} prompts")
    for dtype in bench.config if COPPICE_PLAIN in tokens else ():
        configs = [bench.config[dtype]]
        if dtype == "f32":
            configs.append(Config(0, "f32"))
        for config in dict.fromkeys(configs):
            try:
                checked, differing, gap = bench.check_tokens(tokens[COPPICE_PLAIN], dtype, config)
            except RunFailed as error:
                bench.fails(f"checking tokens by {dtype}", error)
                continue
            out.setdefault(f"tokens checked by {dtype}", []).append(
                {"config": str(config), "tokens": checked, "differing": differing, "largest gap": gap})
            print(f"of coppice's {checked} tokens llama.cpp {dtype} ({config}) would have picked "
                  f"{differing} otherwise, largest logit gap {gap:.3g}")
    for line in bench.failed:
        print(line)
    if bench.disturbed:
        print(f"{bench.disturbed} measurements stayed disturbed by other processes "
              f"(more than {bench.args.foreign:.0%} of the cores) after {bench.args.attempts} attempts")
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--target", default=str(ROOT / "models/stories/target"))
    parser.add_argument("--draft", default=str(ROOT / "models/stories/draft"), help="or none: plain decoding only")
    parser.add_argument("--coppice", default=str(ROOT / "build/coppice"), help="or none: llama.cpp alone")
    parser.add_argument("--llama", help="folder with llama.cpp's include and lib; if not given, llama-cpp-python's")
    parser.add_argument("--no-dyspec", action="store_true", help="leave coppice's speculation out")
    parser.add_argument("--prompts", default=str(ROOT / "bench/prompts/prompts.jsonl"))
    parser.add_argument("--per-kind", type=int, default=6, help="prompts of each kind")
    parser.add_argument("--new-tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--no-trials", action="store_true", help=f"run llama.cpp with {Config()}")
    parser.add_argument("--chains", type=int, nargs="+", default=[1, 2, 3, 4, 5, 6, 8, 10])
    parser.add_argument("--foreign", type=float, default=0.05,
                        help="share of the cores others may take in a measurement")
    parser.add_argument("--attempts", type=int, default=6, help="at one measurement")
    parser.add_argument("--patience", type=float, default=60, help="seconds to wait for a quiet machine")
    parser.add_argument("--out", help="write everything as JSON too")
    parser.add_argument("--gguf", help="compare both on this GGUF file instead: prompts and plain decoding")
    parser.add_argument("--gguf-threads", type=int, nargs="+", default=[1, 2], help="with --gguf, one after another")
    parser.add_argument("--prompt-tokens", type=int, default=256, help="with --gguf")
    args = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        if args.gguf:
            import same_file  # needs this module itself
            return same_file.main(args, pathlib.Path(folder))
        bench = Bench(args, pathlib.Path(folder))
        packages = ["gguf", "sentencepiece"] + ["llama-cpp-python"] * (args.llama is None)
        versions = {p: version_of(p) for p in packages}
        versions["llama.cpp"], cpu = bench.llama.system
        versions["llama.cpp CPU"] = " ".join(w.split(" = ")[0] for w in cpu.removeprefix("CPU : ").split(" | ") if w)
        versions["coppice"] = bench.coppice.version if bench.coppice else "left out"
        with open("/proc/cpuinfo") as f:
            versions["processor"] = next((row.split(":")[1].strip() for row in f if row.startswith("model name")), "?")
        for name, version in versions.items():
            print(f"{name}: {version}")
        print(f"{args.threads} threads, {len(bench.prompts)} prompts, {args.new_tokens} new tokens, greedy, "
              f"{args.rounds} rounds")
        bench.choose_configs()
        for dtype, config in bench.config.items():
            chain = f"; chain of {bench.chain[dtype]}, {bench.chain_config[dtype]}" if dtype in bench.chain else ""
            print(f"llama.cpp {dtype} runs with {config}{chain}")
        speeds, tokens = bench.measure()
        summary = report(bench, speeds, tokens)
        if args.out:
            rows = {side: values.tolist() for side, values in speeds.items()}
            pathlib.Path(args.out).write_text(
                json.dumps({"versions": versions, "summary": summary, "tokens_per_second": rows},
                           indent=1))


if __name__ == "__main__":
    main()
