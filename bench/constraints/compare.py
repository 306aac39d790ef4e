#!/usr/bin/env python3
"""Compares coppice's token masks with XGrammar's, state by state, and times both.

    pip install xgrammar==0.2.9
    cmake --build build --target bench_constraints
    bench/constraints/compare.py --end 128009 llama3.gguf    # a folder or file with a tokenizer

Random walks over coppice's masks are followed by XGrammar's matcher; the masks before each token must
be equal. Times are microseconds, coppice's first: to compile (least of 20 for coppice, one for
XGrammar), of the first mask in a constraint (inside an open string where the schema begins with
one), of the slowest and of the mean mask along the walks, and of the states and masks of a random
tree of 64 nodes whose states are known. Exit code 1 if masks differ that KNOWN does not
explain.
"""
import argparse
import json
import os
import subprocess
import sys
import time
import zlib

import torch
import xgrammar

FIVE = {"type": "object", "properties": {
    "name": {"type": "string"}, "age": {"type": "integer"}, "email": {"type": "string"},
    "tags": {"type": "array", "items": {"type": "string"}}, "ok": {"type": "boolean"}},
    "required": ["name", "age", "email", "tags", "ok"], "additionalProperties": False}
LIMITED = json.loads(json.dumps(FIVE))
LIMITED["properties"]["email"]["maxLength"] = 20
STRING = r'string ::= "\"" ([^"\\\x00-\x1f] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{4}))* "\""'
GRAMMAR_JSON = ('root ::= value\n'
                'value ::= object | array | string | number | "true" | "false" | "null"\n'
                'object ::= "{" ws (member ("," ws member)*)? "}" ws\n'
                'member ::= string ws ":" ws value ws\n'
                'array ::= "[" ws (value ws ("," ws value ws)*)? "]"\n'
                'number ::= "-"? ("0" | [1-9] [0-9]*) ("." [0-9]+)? ([eE] [-+]? [0-9]+)?\n'
                'ws ::= [ \\t\\n]*\n' + STRING + '\n')

CASES = [
    ("schema of five fields", "schema", FIVE),
    ("one field of at most 20 characters", "schema", LIMITED),
    ("nullable and enumerated", "schema", {"type": "object", "properties": {
        "kind": {"enum": ["circle", "square", "a \"quoted\" one"]},
        "size": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "inner": {"type": "object", "properties": {"on": {"type": "boolean"}}, "required": ["on"],
                  "additionalProperties": False}},
        "required": ["kind", "size"], "additionalProperties": False}),
    ("recursive", "schema", {"$ref": "#/$defs/node", "$defs": {"node": {
        "type": "object", "properties": {"value": {"type": "integer"}, "children": {
            "type": "array", "items": {"$ref": "#/$defs/node"}}},
        "required": ["value", "children"], "additionalProperties": False}}}),
    ("items of a tuple", "schema", {"type": "array", "prefixItems": [
        {"type": "string"}, {"type": "integer"}], "items": {"type": "boolean"}, "minItems": 2,
        "maxItems": 5}),
    ("pattern", "schema", {"type": "object", "properties": {
        "id": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{4}$"}}, "required": ["id"],
        "additionalProperties": False}),
    ("JSON as a grammar", "gbnf", GRAMMAR_JSON),
    ("arithmetic", "gbnf", 'root ::= sum\nsum ::= term ([-+] term)*\nterm ::= [0-9]+ | "(" sum ")"\n'),
    ("Unicode ranges", "gbnf", 'root ::= ([a-zà-ÿ] | [一-龥] | [😀-🙏] | "€")+\n'),
    ("counted", "gbnf", 'root ::= [a-z]{3,40} (" " [a-z]{0,12}){2,5} "."\n'),
    ("ambiguous", "gbnf", 'root ::= ("a" | "aa" | "ab" | [a-c]+){1,30} "c" "!"?\n'),
    ("date", "regex", r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])"),
    ("words", "regex", r"[A-Z][a-z]+( [a-z]+){0,10}[.!?]"),
    ("anything but quotes", "regex", r"[^\"'\n\r]*"),
    ("choice", "choice", ["yes", "no", "maybe", "yes, but", "не знаю"]),
]


# Where the two mean different languages.
KNOWN = {"one field of at most 20 characters":
         "XGrammar's strings with maxLength may hold control characters, and no escapes"}


class Coppice:
    def __init__(self, program, tokenizer, ends):
        self.process = subprocess.Popen([program, tokenizer, *map(str, ends)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.vocabulary = json.loads(self.process.stdout.readline())

    def ask(self, **request):
        self.process.stdin.write((json.dumps(request) + "\n").encode())
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


def compiled(compiler, kind, text):
    if kind == "schema":
        return compiler.compile_json_schema(json.dumps(text), any_whitespace=False)
    if kind == "regex":
        return compiler.compile_regex(text)
    if kind == "choice":
        return compiler.compile_grammar("root ::= " + " | ".join(json.dumps(t, ensure_ascii=False)
                                                                   for t in text))
    return compiler.compile_grammar(text)


def traversed(grammar, tree, size):
    """Microseconds of XGrammar's own traversal of a tree, least of 5 rounds."""
    nodes = len(tree["tokens"]) + 1
    child, sibling = torch.full((nodes,), -1), torch.full((nodes,), -1)
    last = {}
    for node, parent in enumerate(tree["parents"], 1):
        if parent in last:
            sibling[last[parent]] = node
        else:
            child[parent] = node
        last[parent] = node
    tokens = torch.tensor([tree["before"][-1]] + tree["tokens"])
    masks = xgrammar.allocate_token_bitmask(nodes, size)
    least = 1e12
    for _ in range(5):
        matcher = xgrammar.GrammarMatcher(grammar)
        for token in tree["before"]:
            assert matcher.accept_token(token)
        start = time.perf_counter()
        matcher.traverse_draft_tree(child, sibling, tokens, masks)
        least = min(least, (time.perf_counter() - start) * 1e6)
    return least


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("tokenizer")
    parser.add_argument("--end", type=int, action="append", default=[], help="end token")
    parser.add_argument("--walks", type=int, default=10)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--golden", help="file for walks and the CRC-32 of XGrammar's masks")
    parser.add_argument("--program", default="build/bench/constraints")
    arguments = parser.parse_args()
    coppice = Coppice(arguments.program, arguments.tokenizer, arguments.end)
    vocabulary = [bytes.fromhex(token) for token in coppice.vocabulary["bytes"]]
    size = len(vocabulary)
    info = xgrammar.TokenizerInfo(vocabulary, xgrammar.VocabType.RAW, vocab_size=size,
                                  stop_token_ids=arguments.end)
    compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
    print(f"{os.path.basename(arguments.tokenizer.rstrip('/'))}: {size} tokens, "
          f"{coppice.vocabulary['nodes']} trie nodes in {coppice.vocabulary['seconds']:.2f} s\n")
    print("| constraint | masks equal | compile | first mask | slowest mask | mean mask | tree of 64 |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    wrong = 0
    golden = []
    for name, kind, text in CASES:
        request = {"kind": kind, "text": json.dumps(text) if kind == "schema" else text,
                   "space": "python"}
        answer = coppice.ask(**request, walks=arguments.walks, steps=arguments.steps,
                             seed=arguments.seed)
        if "error" in answer:
            print(f"| {name} | {answer['error']} |")
            wrong += 1
            continue
        begin = '{"name": "' if kind == "schema" and "name" in text.get("properties", {}) else ""
        first = coppice.ask(**request, first=begin)
        tree = coppice.ask(**request, tree=64, seed=arguments.seed).get("tree")
        start = time.perf_counter()
        grammar = compiled(compiler, kind, text)
        compile_us = (time.perf_counter() - start) * 1e6
        bitmask = xgrammar.allocate_token_bitmask(1, size)
        equal, total, first_bad = 0, 0, None
        ours, ours_new, theirs = [], [], []
        for walk in answer["walks"]:
            matcher = xgrammar.GrammarMatcher(grammar)
            if name not in KNOWN:
                golden.append({"kind": kind, "text": request["text"], "tokens": walk["tokens"],
                               "masks": []})
            for i, token in enumerate(walk["tokens"]):
                start = time.perf_counter()
                matcher.fill_next_token_bitmask(bitmask)
                theirs.append((time.perf_counter() - start) * 1e6)
                ours.append(walk["us"][i])
                if walk["new"][i]:
                    ours_new.append(walk["us"][i])
                total += 1
                words = bitmask[0].numpy().view("uint32").copy()
                if size % 32:
                    words[-1] &= (1 << size % 32) - 1
                crc = zlib.crc32(words.tobytes())
                if name not in KNOWN:
                    golden[-1]["masks"].append(crc)
                if crc == walk["masks"][i]:
                    equal += 1
                elif first_bad is None:
                    before = walk["tokens"][:i]
                    allowed = set(coppice.ask(**request, tokens=before)["allowed"])
                    other = {t for t in range(size) if words[t // 32] >> (t % 32) & 1}
                    first_bad = (b"".join(vocabulary[t] for t in before),
                                 [vocabulary[t] for t in sorted(allowed - other)[:5]],
                                 [vocabulary[t] for t in sorted(other - allowed)[:5]],
                                 len(allowed), len(other))
                if not matcher.accept_token(token):
                    if first_bad is None:
                        first_bad = ("not accepted", vocabulary[token])
                    break
        fresh = xgrammar.GrammarMatcher(grammar)
        fresh.accept_string(begin)
        start = time.perf_counter()
        fresh.fill_next_token_bitmask(bitmask)
        first_us = (time.perf_counter() - start) * 1e6
        slowest = f"{max(ours_new):.0f}, {max(theirs):.0f}"
        means = f"{sum(ours) / len(ours):.1f}, {sum(theirs) / len(theirs):.1f}"
        trees = "–"
        if tree:
            trees = f"{tree['us']:.1f}, {traversed(grammar, tree, size):.0f}"
        print(f"| {name} | {equal} of {total} | {first['compile_us']:.0f}, {compile_us:.0f} | "
              f"{first['first_us']:.0f}, {first_us:.0f} | {slowest} | {means} | {trees} |")
        if first_bad:
            print(f"    {KNOWN.get(name, first_bad)}")
            wrong += name not in KNOWN
    if arguments.golden:
        with open(arguments.golden, "w", encoding="utf-8") as out:
            out.write("[\n" + ",\n".join(json.dumps(one) for one in golden) + "\n]\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
