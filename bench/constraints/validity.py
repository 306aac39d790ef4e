#!/usr/bin/env python3
"""Has the shipped pair, or another, write texts under constraints, and checks each with other programs.

    pip install jsonschema
    bench/constraints/validity.py                # 10,000 texts; --texts N for fewer

Texts are written by `coppice generate --batch`, 1, 8 and 32 at a time, at temperature 0, 0.7 and 1.5, each under
a schema, an expression or a choice of its own line. JSON is checked by Python's jsonschema with its formats, an
expression by Python's re. A text is right if it ended and is valid, or if it ran out of tokens. Exit code 1 if
any is neither. `--write FOLDER` writes the texts there and checks none, `--check FOLDER` checks those: where a fast
machine has no jsonschema.
"""
import argparse
import collections
import concurrent.futures
import json
import pathlib
import re
import subprocess
import sys
import tempfile

SETTINGS = [(parallel, temperature) for parallel in (1, 8, 32) for temperature in (0, 0.7, 1.5)]
NAMES = ["Lily", "Tom", "Ben", "Max", "Mia"]
RULES = {
    "five fields": {"type": "object", "properties": {
        "name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "email": {"type": "string", "format": "email", "maxLength": 20}, "ok": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 8}, "maxItems": 3}},
        "required": ["name", "age", "email", "ok", "tags"], "additionalProperties": False},
    "enumerated": {"type": "object", "properties": {
        "who": {"enum": NAMES}, "mood": {"enum": ["happy", "sad", "a \"bit\" of both", None]},
        "size": {"anyOf": [{"type": "number", "exclusiveMinimum": 0, "maximum": 9.5}, {"type": "null"}]}},
        "required": ["who", "mood", "size"], "additionalProperties": False},
    "recursive": {"$ref": "#/$defs/box", "$defs": {"box": {
        "type": "object", "properties": {"is": {"enum": ["box", "ball"]},
                                         "in": {"type": "array", "items": {"$ref": "#/$defs/box"}, "maxItems": 2}},
        "required": ["is", "in"], "additionalProperties": False}}},
    "tuple": {"type": "array", "prefixItems": [{"type": "string", "minLength": 2, "maxLength": 9},
                                               {"type": "integer", "multipleOf": 5}, {"const": {"a": [1, "b"]}}],
              "items": {"type": "boolean"}, "minItems": 3, "maxItems": 5},
    "patterns": {"type": "object", "properties": {
        "id": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{4}$"}, "day": {"type": "string", "format": "date"}},
        "required": ["id", "day"], "additionalProperties": {"type": "boolean"}, "maxProperties": 4},
    "conditional": {"type": "object", "properties": {"kind": {"enum": ["cat", "dog"]}, "lives": {"type": "integer"}},
                    "required": ["kind"], "additionalProperties": False,
                    "if": {"properties": {"kind": {"const": "cat"}}}, "then": {"required": ["lives"]},
                    "else": {"not": {"required": ["lives"]}}},
    "expression": re.compile(r"([A-Z][a-z]{1,8}(, [a-z]{2,9}){0,3}[.!?]( |\n)){1,3}The end"),
    "choice": ["yes", "no", "maybe, maybe not", "не знаю", "once upon a time there was a cat"],
}


def line_of(prompt, rule):
    line = {"prompt": prompt}
    if isinstance(rule, re.Pattern):
        line["regex"] = rule.pattern
    elif isinstance(rule, list):
        line["choice"] = rule
    else:
        line["json_schema"] = rule
    return line


def is_valid(text, rule):
    if isinstance(rule, re.Pattern):
        return rule.fullmatch(text) is not None
    if isinstance(rule, list):
        return text in rule
    try:
        value = json.loads(text)
    except ValueError:
        return False
    import jsonschema  # pylint: disable=import-outside-toplevel
    checker = jsonschema.Draft202012Validator(rule, format_checker=jsonschema.FormatChecker())
    return checker.is_valid(value)


def texts_before(arguments, place):
    return arguments.texts * place // len(SETTINGS)


def names_of(arguments, place):
    """The rules of a setting's texts."""
    count = texts_before(arguments, place + 1) - texts_before(arguments, place)
    return [list(RULES)[i % len(RULES)] for i in range(count)]


def lines_of(written):
    return [json.loads(line) for line in written.read_text(encoding="utf-8").splitlines()]


def write(arguments, place, written):
    """The texts of a setting, as lines of the command."""
    (parallel, temperature), made = SETTINGS[place], texts_before(arguments, place)
    prompts = [json.loads(line) for line in pathlib.Path(arguments.prompts).read_text(encoding="utf-8").splitlines()]
    prompts = [prompt["prompt"][-most:] for most in (300, 200, 120, 70) for prompt in prompts if "prompt" in prompt]
    asked = written.with_suffix(".asked")
    # Other prompts for each setting, so that texts at temperature 0 differ, too.
    asked.write_text("".join(json.dumps(line_of(prompts[(made + i) // len(RULES) % len(prompts)], RULES[name])) + "\n"
                             for i, name in enumerate(names_of(arguments, place))), encoding="utf-8")
    subprocess.run([arguments.program, "generate", "--batch", asked, "--output", written, "--parallel", str(parallel),
                    "--temperature", str(temperature), "--seed", str(place), "--max-new-tokens",
                    str(arguments.max_new_tokens), *arguments.options], check=True, stderr=subprocess.DEVNULL)
    asked.unlink()
    return lines_of(written)


def write_all(arguments):
    arguments.write.mkdir(parents=True, exist_ok=True)
    with concurrent.futures.ThreadPoolExecutor(arguments.at_once) as pool:
        under_way = [pool.submit(write, arguments, place, arguments.write / f"{place}.jsonl")
                     for place in range(len(SETTINGS))]
        for one in under_way:
            one.result()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--texts", type=int, default=10_000)
    parser.add_argument("--program", default="build/coppice")
    parser.add_argument("--prompts", default="bench/prompts/prompts.jsonl")
    parser.add_argument("--max-new-tokens", type=int, default=96)
    parser.add_argument("--write", type=pathlib.Path, metavar="FOLDER")
    parser.add_argument("--check", type=pathlib.Path, metavar="FOLDER")
    parser.add_argument("--at-once", type=int, default=1, help="settings that are written at a time, with --write")
    parser.add_argument("options", nargs="*", help="of coppice generate, behind --")
    arguments = parser.parse_args()
    if arguments.write:
        write_all(arguments)
        return 0
    print("| texts at a time | temperature | texts | valid | ran out of tokens | other |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: |")
    wrong, by_rule = 0, collections.Counter()
    for place, (parallel, temperature) in enumerate(SETTINGS):
        names = names_of(arguments, place)
        count = len(names)
        if arguments.check:
            lines = lines_of(arguments.check / f"{place}.jsonl")
        else:
            with tempfile.TemporaryDirectory() as folder:
                lines = write(arguments, place, pathlib.Path(folder) / "texts.jsonl")
        assert len(lines) == count, (len(lines), count)
        valid = cut = 0
        for line in lines:
            name = names[line["index"]]
            if line.get("finish_reason") == "eos" and is_valid(line["text"], RULES[name]):
                valid += 1
                by_rule[name] += 1
            elif line.get("finish_reason") == "length":
                cut += 1
            else:
                wrong += 1
                print(f"{name}: {line.get('finish_reason')} {line.get('error')} {line.get('text')!r}", file=sys.stderr)
        print(f"| {parallel} | {temperature} | {count} | {valid} | {cut} | {count - valid - cut} |", flush=True)
    print(f"\n{arguments.texts} texts, {wrong} neither valid nor cut; valid: "
          + ", ".join(f"{name} {by_rule[name]}" for name in RULES))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
