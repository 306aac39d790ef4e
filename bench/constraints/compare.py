#!/usr/bin/env python3
"""Compares coppice's token masks with XGrammar's, state by state, and times both.

    pip install xgrammar==0.2.9
    cmake --build build --target bench_constraints
    bench/constraints/compare.py --end 128009 llama3.gguf    # a folder or file with a tokenizer

Random walks over coppice's masks are followed by XGrammar's matcher; the masks before each token must
be equal. Then the table: microseconds to compile, of the first mask of a state and of the mean mask,
and of the states and masks of a tree of 64 nodes. Exit code 1 if a mask differs that no line of
KNOWN explains.
"""
import argparse
import json
import os
import subprocess
import sys
import time
import zlib

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
# Where the two mean different languages, and why coppice is right.
KNOWN = {}


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


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("tokenizer")
    parser.add_argument("--end", type=int, action="append", default=[], help="end token")
    parser.add_argument("--walks", type=int, default=10)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
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
    print("| constraint | masks equal | compile | first mask | mean mask | tree of 64 |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    wrong = 0
    for name, kind, text in CASES:
        request = {"kind": kind, "text": json.dumps(text) if kind == "schema" else text,
                   "space": "python"}
        answer = coppice.ask(**request, walks=arguments.walks, steps=arguments.steps,
                             seed=arguments.seed)
        if "error" in answer:
            print(f"| {name} | {answer['error']} |")
            wrong += 1
            continue
        tree = coppice.ask(**request, tree=64, seed=arguments.seed).get("tree_us")
        start = time.perf_counter()
        grammar = compiled(compiler, kind, text)
        compile_us = (time.perf_counter() - start) * 1e6
        bitmask = xgrammar.allocate_token_bitmask(1, size)
        equal, total, first_bad = 0, 0, None
        ours, ours_new, theirs = [], [], []
        for walk in answer["walks"]:
            matcher = xgrammar.GrammarMatcher(grammar)
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
                if zlib.crc32(words.tobytes()) == walk["masks"][i]:
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
        print(f"| {name} | {equal} of {total} | {answer['compile_us']:.0f}, {compile_us:.0f} | "
              f"{max(ours_new):.0f}, {max(theirs):.0f} | {sum(ours) / len(ours):.1f}, "
              f"{sum(theirs) / len(theirs):.1f} | {tree:.1f} |")
        if first_bad:
            print(f"    {first_bad}" + (f" (known: {KNOWN[name]})" if name in KNOWN else ""))
            wrong += name not in KNOWN
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
