#!/usr/bin/env python3
"""Compares coppice's tokenizers with the tokenizers package, on folders with a tokenizer.json.

    pip install 'tokenizers==0.23.*'
    cmake --build build --target bench_tokenize
    bench/tokenizer/compare.py --texts FILE FOLDER...

First random Unicode (--cases texts of up to 60 characters, from a seed) goes through both: ids and
decoded text must be equal, and all that differ are printed. Then FILE is encoded by both in turn,
line by line and as one text, on one thread: the table has the least seconds of --rounds, and their
ratio. Exit code 1 if anything differs.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import time
import unicodedata

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["RUST_BACKTRACE"] = "0"
from tokenizers import Tokenizer  # noqa: E402

RANGES = [(0x20, 0x7F)] * 6 + [(0x00, 0x20), (0xA0, 0x250), (0x300, 0x370), (0x370, 0x530),
          (0x5D0, 0x6FF), (0x900, 0xE80), (0x1100, 0x1200), (0x1E00, 0x2000), (0x2000, 0x2070),
          (0x2070, 0x2600), (0x3040, 0x3100), (0x4E00, 0x9FFF), (0xAC00, 0xD7A4), (0xFB00, 0xFE10),
          (0xFF00, 0xFFF0), (0x10000, 0x10400), (0x1D400, 0x1D800), (0x1F1E6, 0x1F700),
          (0x20000, 0x20100), (0xE0100, 0xE01F0), (0, 0x110000)]
WORDS = [" ", "  ", "\n", "\n\n", "\t", "'s", "'LL", "the", " The", "can't", "\u2581", "\r\n", "123",
         "\u3000", "e\u0301", "<0x41>", "...", "I'm", "https://", "\u00a0", "\u200d", "_a"]


def random_text(draw, specials):
    text = ""
    for _ in range(draw.randint(1, 60)):
        kind = draw.random()
        if kind < 0.3:
            text += draw.choice(WORDS)
        elif kind < 0.34 and specials:
            text += draw.choice(specials)
        else:
            low, high = draw.choice(RANGES)
            for _ in range(draw.randint(1, 4)):
                code = draw.randrange(low, high)
                # Unassigned characters get properties with each version of Unicode.
                if not 0xD800 <= code < 0xE000 and unicodedata.category(chr(code)) != "Cn":
                    text += chr(code)
    return text


class Coppice:
    def __init__(self, program, folder):
        self.process = subprocess.Popen([program, folder], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        line = self.process.stdout.readline()
        self.refusal = "" if line else self.process.stderr.read().decode().strip()
        if line:
            self.load_seconds = json.loads(line)["seconds"]

    def ask(self, **request):
        self.process.stdin.write((json.dumps(request) + "\n").encode())
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def hides_specials(wheel):
    """Whether the package knows special tokens again in decode(): it goes by normalized texts."""
    return all(not token.normalized or wheel.normalizer is None or
               wheel.normalizer.normalize_str(token.content) == token.content
               for token in wheel.get_added_tokens_decoder().values())


def by_package(wheel, text, hides):
    ids = wheel.encode(text, add_special_tokens=False).ids
    answer = {"ids": ids, "framed": wheel.encode(text).ids,
              "decoded": wheel.decode(ids, skip_special_tokens=False)}
    return {**answer, "shown": wheel.decode(ids)} if hides else answer


def differences(name, wheel, coppice, cases, seed, text_of=random_text, most=None):
    """How many texts differ; stops at `most`."""
    draw = random.Random(seed)
    specials = sorted(t.content for t in wheel.get_added_tokens_decoder().values())
    hides = hides_specials(wheel)
    count = 0
    for _ in range(cases):
        if count == most:
            break
        text = text_of(draw, specials)
        try:
            wanted = by_package(wheel, text, hides)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            continue  # the package cannot: an error, or a panic of its own
        got = coppice.ask(text=text)
        for key, value in wanted.items():
            if got.get(key) != value:
                count += 1
                print(f"{name}: {key} of {text!r}: {value} by the package, "
                      f"{got.get(key, got.get('error'))} by coppice")
                break
    return count


def least_seconds(wheel, coppice, path, rounds, lines):
    with open(path, encoding="utf-8", newline="") as file:
        text = file.read()
    texts = text.split("\n") if lines else [text]
    if lines and texts[-1] == "":
        texts.pop()
    ours, theirs = [], []
    for _ in range(rounds):
        answer = coppice.ask(file=os.path.abspath(path), lines=lines)
        start = time.perf_counter()
        tokens = sum(len(wheel.encode(t, add_special_tokens=False).ids) for t in texts)
        theirs.append(time.perf_counter() - start)
        ours.append(answer["seconds"])
        if tokens != answer["tokens"]:
            sys.exit(f"{path}: {tokens} tokens by the package, {answer['tokens']} by coppice")
    return min(ours), min(theirs)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--texts", help="a UTF-8 file to time; without it nothing is timed")
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--program", default="build/bench/tokenize")
    options = parser.parse_args()
    different = 0
    print("| folder | texts | differ | load s | by line: coppice, package s | ratio "
          "| whole: coppice, package s | ratio |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for folder in options.folders:
        name = os.path.basename(os.path.normpath(folder))
        wheel = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
        wheel.no_truncation()
        wheel.no_padding()
        coppice = Coppice(options.program, folder)
        if coppice.refusal:
            sys.exit(coppice.refusal)
        count = differences(name, wheel, coppice, options.cases, options.seed)
        different += count
        cells = [name, str(options.cases), str(count), f"{coppice.load_seconds:.2f}"]
        for lines in (True, False) if options.texts else ():
            ours, theirs = least_seconds(wheel, coppice, options.texts, options.rounds, lines)
            cells += [f"{ours:.3f}, {theirs:.3f}", f"{theirs / ours:.1f}"]
        print("| " + " | ".join(cells) + " |", flush=True)
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
