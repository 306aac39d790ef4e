"""Speed of coppice and llama.cpp on one GGUF file: prompts, and plain decoding, on some numbers of threads.

compare.py --gguf calls it. Token ids are random, as llama-bench's are: speed does not depend on them.
"""

import dataclasses
import json
import pathlib
import random
import statistics

import gguf

import compare

OPENING = 16  # ids before the tokens that are decoded


def vocabulary_of(file):
    """How many rows the file's table of embeddings has."""
    (table,) = (t for t in gguf.GGUFReader(file).tensors if t.name == "token_embd.weight")
    return int(table.shape[1])


class SameFile:
    def __init__(self, args, folder):
        self.args = args
        file = pathlib.Path(args.gguf).resolve(strict=True)
        self.llama = compare.LlamaCpp(folder, 1, args.llama)
        (folder / "target-given.gguf").symlink_to(file)  # where LlamaCpp.run() looks
        self.coppice = compare.Coppice(args.coppice, str(file), "none", 1)
        draw, rows = random.Random(1), vocabulary_of(file)
        ids = [draw.randrange(rows) for _ in range(max(OPENING, args.prompt_tokens))]
        self.opening, self.prompt = ids[:OPENING], ids[:args.prompt_tokens]
        self.config, self.failed = None, []

    def choose_config(self):
        """llama.cpp's fastest way to decode that runs here."""
        speeds = {}
        for flash in (1, 0):
            for repack in (1, 0):
                config = dataclasses.replace(compare.Config(), flash=flash, repack=repack)
                try:
                    speeds[config] = self.llama_speeds(config, self.opening, self.args.new_tokens)[1]
                except compare.RunFailed as error:
                    self.failed.append(f"llama.cpp, {config}: {error}")
        if not speeds:
            raise SystemExit("llama.cpp does not run the file:\n" + "\n".join(self.failed))
        self.config = max(speeds, key=speeds.get)

    def llama_speeds(self, config, ids, new_tokens):
        """Tokens/s of the prompt but its last token, and of new ones."""
        (row,) = self.llama.run([compare.ids_line(ids)], "given", config, new_tokens)
        return (len(ids) - 1) / row["prefill_seconds"], new_tokens / row["seconds"]

    def coppice_speeds(self, ids, new_tokens):
        """Tokens/s of the prompt, and of new tokens but the first, which comes with it."""
        result = self.coppice.run(ids, new_tokens, False)
        return len(ids) / result["seconds"]["prefill"], result["decode_tokens_per_second"]

    def pair(self, first, ids, new_tokens, which):
        """Both programs, one right after the other; `first` says who begins."""
        compare.wait_for_quiet(self.args.foreign, self.args.patience)
        sides = [("coppice", lambda: self.coppice_speeds(ids, new_tokens)[which]),
                 ("llama.cpp", lambda: self.llama_speeds(self.config, ids, new_tokens)[which])]
        if first == "llama.cpp":
            sides.reverse()
        return {name: run() for name, run in sides}

    def measure(self):
        """[{work, threads, coppice, llama.cpp, ratio}], medians over the rounds."""
        rows = []
        for threads in self.args.gguf_threads:
            self.llama.threads = self.coppice.threads = threads
            self.choose_config()
            for work, ids, new_tokens, which in (
                    (f"prompt of {len(self.prompt)}", self.prompt, 2, 0),
                    (f"decoding {self.args.new_tokens}", self.opening, self.args.new_tokens, 1)):
                pairs = [self.pair(("coppice", "llama.cpp")[n % 2], ids, new_tokens, which)
                         for n in range(self.args.rounds)]
                row = {side: statistics.median(p[side] for p in pairs) for side in pairs[0]}
                row["ratio"] = statistics.median(p["coppice"] / p["llama.cpp"] for p in pairs)
                rows.append({"work": work, "threads": threads, "config": str(self.config), **row})
                compare.log(f"{work}, {threads} threads done")
        return rows


def main(args, folder):
    bench = SameFile(args, folder)
    rows = bench.measure()
    print(f"{args.gguf}: tokens/s, medians of {args.rounds} pairs\n")
    print("| work | threads | coppice | llama.cpp | coppice / llama.cpp | llama.cpp runs with |\n"
          "|---|---:|---:|---:|---:|---|")
    for row in rows:
        print(f"| {row['work']} | {row['threads']} | {row['coppice']:.1f} | {row['llama.cpp']:.1f} | "
              f"{row['ratio']:.2f} | {row['config']} |")
    for line in dict.fromkeys(bench.failed):
        print(line)
    if args.out:
        pathlib.Path(args.out).write_text(json.dumps({"file": args.gguf, "rows": rows}, indent=1))
