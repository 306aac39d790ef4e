#!/usr/bin/env python3
"""Compares coppice with the tokenizers package on tokenizer.json files composed at random.

    pip install 'tokenizers==0.23.*'
    cmake --build build --target bench_tokenize
    bench/tokenizer/compose.py --files 500

Each file has stages with options drawn from all that coppice reads, over a small vocabulary, and
random texts go through both programs as in compare.py. Texts at which the package fails are left
out. Prints each file with its first difference, what coppice refuses (by reason, counted), and how
many files are equal. Exit code 1 if any is not.
"""
import argparse
import collections
import json
import os
import random
import re
import sys
import tempfile

import compare
from tokenizers import Tokenizer, pre_tokenizers

MARK = "\u2581"
BEHAVIORS = ["Removed", "Isolated", "Contiguous", "MergedWithPrevious", "MergedWithNext"]
LETTERS = list("abcdABx109 .,'_<>-\n") + [MARK, "\u00e9", "e", "\u0301", "\ufb01", "\u4f60"]
STRINGS = ["a", " ", MARK, "x", "ab", ".", "", "\u00e9", "  "]
EXPRESSIONS = ["x*", "a|b", r"\s+", "[0-9]", r"\p{L}+", " {2,}", "^a", "b$", "(?=a)", r"\b", "",
               r" ?\p{L}+|\s", "(?i)AB", r"[^\w]", "a?", r"(?<=a)b", r".\n?"]
GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "golden",
                      "tokenizers", "unigram.json")
with open(GOLDEN, encoding="ascii") as golden:
    PRECOMPILED = json.load(golden)["tokenizer"]["normalizer"]["normalizers"][0]
NOTHING = ["x*", "(?=a)", r"\b", "", "a?"]
TOKENS = ["<s>", "</s>", "<m>", " ", "  ", "a", "ab", "AB", "\u00e9", "x", "a b", " a", "b ", MARK,
          MARK + "a", "1", "\n", "word", "\u4f60", "<0x41>", "E\u0301"]


class Composer:
    def __init__(self, draw):
        self.draw = draw

    def flip(self, chance=0.5):
        return self.draw.random() < chance

    def several(self, kind, key, most=3):
        """One stage, a Sequence of some, or none."""
        count = self.draw.choice([0, 1, 1, 2, most])
        if count == 0 and self.flip(0.9):
            return None
        stages = [kind() for _ in range(count)]
        return stages[0] if count == 1 and self.flip() else {"type": "Sequence", key: stages}

    def pattern(self):
        if self.flip(0.6):
            return {"String": self.draw.choice(STRINGS)}
        return {"Regex": self.draw.choice(EXPRESSIONS)}

    def replace(self, nothing=True):
        """`nothing`: the pattern may match nothing, and then inserts the content."""
        content = self.draw.choice(["", " ", MARK, "a", "xy", "\u00e9"])
        while True:
            pattern = self.pattern()
            if nothing or not content or "".join(pattern.values()) not in NOTHING:
                return {"type": "Replace", "pattern": pattern, "content": content}

    def normalizer(self):
        kind = self.draw.choice(["NFC", "NFD", "NFKC", "NFKD", "Lowercase", "Strip", "Replace",
                                 "Replace", "Prepend", "Precompiled"])
        if kind == "Replace":
            # The package writes twice what is inserted at the start if a later stage rewrites it.
            return self.replace(nothing=False)
        stage = {"type": kind}
        if kind == "Precompiled":
            stage = PRECOMPILED
        elif kind == "Strip":
            stage.update(strip_left=self.flip(), strip_right=self.flip())
        elif kind == "Prepend":
            stage["prepend"] = self.draw.choice([MARK, " ", "a"])
        return stage

    def byte_level(self):
        return {"type": "ByteLevel", "add_prefix_space": self.flip(), "trim_offsets": self.flip(),
                "use_regex": self.flip()}

    def metaspace(self):
        stage = {"type": "Metaspace", "replacement": self.draw.choice([MARK, MARK, "_"]),
                 "prepend_scheme": self.draw.choice(["always", "first", "never"])}
        if self.flip():
            stage["split"] = self.flip()
        return stage

    def pre_tokenizer(self):
        kind = self.draw.choice(["Split", "Split", "ByteLevel", "ByteLevel", "Metaspace", "Digits",
                                 "Punctuation", "Whitespace", "WhitespaceSplit"])
        stage = {"type": kind}
        if kind == "Split":
            stage.update(pattern=self.pattern(), behavior=self.draw.choice(BEHAVIORS),
                         invert=self.flip(0.3))
        elif kind == "ByteLevel":
            stage = self.byte_level()
        elif kind == "Metaspace":
            stage = self.metaspace()
        elif kind == "Digits":
            stage["individual_digits"] = self.flip()
        elif kind == "Punctuation":
            stage["behavior"] = self.draw.choice(BEHAVIORS)
        return stage

    def decoder(self):
        kind = self.draw.choice(["ByteLevel", "ByteFallback", "Fuse", "Strip", "Replace",
                                 "Metaspace"])
        stage = {"type": kind}
        if kind == "ByteLevel":
            stage = self.byte_level()
        elif kind == "Strip":
            stage.update(content=self.draw.choice([" ", "a", MARK]), start=self.draw.randint(0, 2),
                         stop=self.draw.randint(0, 2))
        elif kind == "Replace":
            stage = self.replace()
        elif kind == "Metaspace":
            stage = self.metaspace()
        return stage

    def pieces(self, spelt):
        """Single characters, and pairs of pieces that are pieces too."""
        known = [letter for letter in LETTERS if self.flip(0.8)]
        if spelt:
            known += [c for c in sorted(pre_tokenizers.ByteLevel.alphabet())
                      if c not in known and self.flip(0.97)]
        elif self.flip(0.1):
            known += ["\u00c3", "\u00a9", "\u0120"]
        merges = []
        for _ in range(self.draw.choice([0, 10, 60])):
            left, right = self.draw.choice(known), self.draw.choice(known)
            if (left, right) not in merges and len(left + right) < 12:
                merges.append((left, right))
                if left + right not in known:
                    known.append(left + right)
        self.draw.shuffle(merges)
        return known, merges

    def model(self, spelt):
        known, merges = self.pieces(spelt)
        fallback = self.flip(0.3)
        if fallback:
            full = self.flip(0.7)
            known += ["<0x%02X>" % i for i in range(256) if full or self.flip(0.9)]
        known.insert(self.draw.randint(0, len(known)) if self.flip(0.2) else 0, "<unk>")
        known = list(dict.fromkeys(known))
        if self.flip(0.35):
            scores = [-self.draw.choice([1, 2, 3, 2.5, 4.25, 8]) * 1.0 for _ in known]
            return {"type": "Unigram", "unk_id": known.index("<unk>") if self.flip(0.9) else None,
                    "vocab": [list(pair) for pair in zip(known, scores)],
                    "byte_fallback": fallback}
        return {"type": "BPE", "dropout": None, "unk_token": "<unk>" if self.flip(0.7) else None,
                "continuing_subword_prefix": None, "end_of_word_suffix": None,
                "fuse_unk": self.flip(), "byte_fallback": fallback,
                "ignore_merges": self.flip(0.3), "vocab": {p: i for i, p in enumerate(known)},
                "merges": [list(pair) for pair in merges] if self.flip(0.7) or
                any(" " in piece for pair in merges for piece in pair)
                else [" ".join(pair) for pair in merges]}

    def added_tokens(self, model):
        vocab = model["vocab"]
        known = vocab if isinstance(vocab, dict) else {p: i for i, (p, _) in enumerate(vocab)}
        chosen = self.draw.sample(TOKENS, self.draw.choice([0, 1, 3, 6]))
        ids, next_id = {}, len(known)
        for content in chosen:
            ids[content] = known.get(content, next_id)
            next_id += content not in known
        return [{"id": ids[c], "content": c, "single_word": self.flip(0.2),
                 "lstrip": self.flip(0.3), "rstrip": self.flip(0.3), "normalized": self.flip(),
                 "special": self.flip(0.4)} for c in sorted(chosen, key=ids.get)]

    def template(self, ids):
        names = self.draw.sample(sorted(ids), min(len(ids), self.draw.randint(0, 2)))
        parts = [{"SpecialToken": {"id": name, "type_id": 0}} for name in names]
        parts.insert(self.draw.randint(0, len(parts)), {"Sequence": {"id": "A", "type_id": 0}})
        return {"type": "TemplateProcessing", "single": parts,
                "pair": [{"Sequence": {"id": "A", "type_id": 0}},
                         {"Sequence": {"id": "B", "type_id": 0}}],
                "special_tokens": {name: {"id": name, "ids": [ids[name]], "tokens": [name]}
                                   for name in names}}

    def file(self):
        pre_tokenizer = self.several(self.pre_tokenizer, "pretokenizers")
        # In the package more than one word is the first if the first character is cut.
        for stage in (pre_tokenizer or {}).get("pretokenizers", [])[1:]:
            if stage.get("prepend_scheme") == "first":
                stage["prepend_scheme"] = "never"
        model = self.model("ByteLevel" in json.dumps(pre_tokenizer) and self.flip(0.8))
        added = self.added_tokens(model)
        ids = {token["content"]: token["id"] for token in added}

        templates = []

        def post_processor():
            if templates or self.flip(0.3):
                return self.byte_level()
            templates.append(self.template(ids))
            return templates[0]
        return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
                "normalizer": self.several(self.normalizer, "normalizers"),
                "pre_tokenizer": pre_tokenizer,
                "post_processor": self.several(post_processor, "processors", 2),
                "decoder": self.several(self.decoder, "decoders", 4), "model": model}


def random_text(draw, tokens):
    """Mostly what the stages act on, so that they meet."""
    text = ""
    for _ in range(draw.randint(0, 12)):
        kind = draw.random()
        if kind < 0.2 and tokens:
            text += draw.choice(tokens)
        elif kind < 0.25:
            text += compare.random_text(draw, tokens)[:4]
        else:
            text += draw.choice(LETTERS + [" ", "a", "b", "x", "\u2603", "\U0001f600", "\u00c3"])
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--files", type=int, default=500)
    parser.add_argument("--cases", type=int, default=60, help="texts for each file")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--program", default="build/bench/tokenize")
    options = parser.parse_args()
    equal, different, refused = 0, 0, collections.Counter()
    for number in range(options.seed, options.seed + options.files):
        draw = random.Random(number)
        file = Composer(draw).file()
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "tokenizer.json"), "w", encoding="utf-8") as out:
                json.dump(file, out)
            coppice = compare.Coppice(options.program, folder)
            if coppice.refusal:
                reason = coppice.refusal.split("tokenizer.json: ", 1)[-1]
                refused[re.sub(r"\[?[0-9]+\]?|'[^']*'", "_", reason)] += 1
                continue
            try:
                wheel = Tokenizer.from_str(json.dumps(file))
            except BaseException as error:  # its panics are no Exception
                refused[f"by the package: {re.sub('[0-9]+', 'N', str(error))}"] += 1
                continue
            normal = [wheel.normalizer.normalize_str(t["content"]) for t in file["added_tokens"]
                      if t["normalized"]] if wheel.normalizer else []
            if len(set(normal)) < len(normal):
                refused["by chance: of added tokens that are normalized alike one is found"] += 1
                continue
            name = f"seed {number}"
            if compare.differences(name, wheel, coppice, options.cases, number, random_text, 1):
                different += 1
                shown = dict(file, model={k: v for k, v in file["model"].items()
                                          if k not in ("vocab", "merges")})
                print(f"{name}: {json.dumps(shown, ensure_ascii=False)}", flush=True)
            else:
                equal += 1
            coppice.close()
    for reason, count in refused.most_common():
        print(f"{count} refused: {reason}")
    print(f"{options.files} files: {equal} equal, {different} different, {refused.total()} refused")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
