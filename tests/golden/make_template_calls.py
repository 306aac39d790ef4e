#!/usr/bin/env python3
"""What Jinja2 makes of every filter, method, test and function that coppice's chat templates have,
with arguments that fit and that do not: tests/golden/template_calls.json.

    python3 tests/golden/make_template_calls.py        (needs jinja2 3.1.6)

The file has {"groups": [{"heads": [...], "tails": [...], "results": {...}}, ...]}. A group's
templates are each head followed by each tail; "results" has the text that Jinja2 prints, by the
number of the template. What is not there is refused by Jinja2, or prints as an address.
"""
import json
import os
import pathlib
import resource
import signal
import tempfile

import jinja2
import jinja2.ext
import jinja2.sandbox

ATOMS = ["none", "missing", "true", "-1", "0", "2", "10**18", "-10**18", "1.5", "missing|d('nan')|float", "''",
         "'a'", "'ab'", "[]", "['a', 2]", "(1, 'b')", "{'a': 1}"]
FEW = ["none", "-1", "2", "10**18", "'a'", "''", "['a', 2]"]
SUBJECTS = ["'a Bc'", "-2.5", "none", "missing", "['b', 'a']", "[{'a': 2}, {'a': 1}]",
            "{'b': 1, 'a': 2}"]

# Names of parameters; more of them than shown are too many.
FILTERS = {
    "abs": [], "attr": ["name"], "batch": ["linecount", "fill_with"], "capitalize": [],
    "center": ["width"], "count": [], "d": ["default_value", "boolean"],
    "default": ["default_value", "boolean"], "dictsort": ["case_sensitive", "by", "reverse"],
    "e": [], "escape": [], "first": [], "float": ["default"], "forceescape": [], "format": ["x"],
    "groupby": ["attribute", "default", "case_sensitive"], "indent": ["width", "first", "blank"],
    "int": ["default", "base"], "items": [], "join": ["d", "attribute"], "last": [], "length": [],
    "list": [], "lower": [], "map": ["attribute", "default"],
    "max": ["case_sensitive", "attribute"], "min": ["case_sensitive", "attribute"],
    "reject": ["x"], "rejectattr": ["x"], "replace": ["old", "new", "count"], "reverse": [],
    "round": ["precision", "method"], "safe": [], "select": ["x"], "selectattr": ["x"],
    "slice": ["slices", "fill_with"], "sort": ["reverse", "case_sensitive", "attribute"],
    "string": [], "sum": ["attribute", "start"], "title": [],
    "tojson": ["ensure_ascii", "indent", "separators", "sort_keys"], "trim": ["chars"],
    "truncate": ["length", "killwords", "end", "leeway"],
    "unique": ["case_sensitive", "attribute"], "upper": [], "urlencode": [], "wordcount": [],
}
GENERATORS = ["batch", "items", "map", "reject", "rejectattr", "reverse", "select", "selectattr",
              "slice", "unique"]
TESTS = ["!=", "<", "<=", "==", ">", ">=", "boolean", "callable", "defined", "divisibleby", "eq",
         "equalto", "escaped", "even", "false", "filter", "float", "ge", "greaterthan", "gt", "in",
         "integer", "iterable", "le", "lessthan", "lower", "lt", "mapping", "ne", "none", "number",
         "odd", "sameas", "sequence", "string", "test", "true", "undefined", "upper"]
STRING_METHODS = ["capitalize", "casefold", "center", "count", "endswith", "expandtabs", "find",
                  "format", "index", "isalnum", "isalpha", "isdecimal", "isdigit", "islower",
                  "isnumeric", "isspace", "isupper", "join", "ljust", "lower", "lstrip",
                  "partition", "removeprefix", "removesuffix", "replace", "rfind", "rindex",
                  "rjust", "rpartition", "rsplit", "rstrip", "split", "splitlines", "startswith",
                  "strip", "swapcase", "title", "upper", "zfill"]
DICT_METHODS = ["copy", "get", "items", "keys", "values"]
LIST_METHODS = ["copy", "count", "index"]
FUNCTIONS = {"cycler": ["x"], "dict": ["a"], "joiner": ["sep"], "namespace": ["a"],
             "raise_exception": ["message"], "range": ["x"], "strftime_now": ["format"]}


def shapes(names):
    """Lists of arguments, in brackets."""
    out = [[]] + [[atom] for atom in ATOMS]
    count = max(2, len(names))
    for place in range(1, count):
        for atom in FEW:
            out.append(["'a'" if place % 2 else "2"] * place + [atom])
    for name in names:
        out += [[f"{name}={atom}"] for atom in FEW]
        out.append(["'a'", f"{name}='a'"])
    out += [["nosuchname=1"], ["'a'"] * (count + 1), ["'a'"] * 9, ["**{'x': 1}", "x=1"]]
    return ["(" + ", ".join(one) + ")" for one in out]


def groups():
    for name, names in sorted(FILTERS.items()):
        tail = "|list }}" if name in GENERATORS else " }}"
        tails = [shape + tail for shape in shapes(names)]
        if name in ("round", "slice"):  # Jinja2 would work for ever
            tails = [one.replace("10**18", "99") for one in tails]
        yield [f"{{{{ {s}|{name}" for s in SUBJECTS], tails
    for name in TESTS:
        if name.isalpha():
            yield ([f"{{{{ {s} is {name}" for s in SUBJECTS],
                   [shape + " }}" for shape in shapes([])[:len(ATOMS) + 1]] +
                   ["('a', 2) }}", "(x=1) }}"])
        else:
            yield ([f"{{{{ [{s}]|select('{name}'" for s in SUBJECTS],
                   [")|list }}"] + [f", {a})|list }}}}" for a in ATOMS] + [", 1, 2)|list }}"])
    for name in STRING_METHODS:
        names = {"replace": ["count"], "rsplit": ["sep", "maxsplit"], "expandtabs": ["tabsize"],
                 "split": ["sep", "maxsplit"], "splitlines": ["keepends"]}.get(name, ["chars"])
        yield ([f"{{{{ {s}.{name}" for s in ("'a bAa'", "''", "'{}\\t%s'", "'-4é'")],
               [shape + " }}" for shape in shapes(names)])
    for name in DICT_METHODS:
        yield [f"{{{{ {{'a': 1, 2: 'b'}}.{name}"], [shape + " }}" for shape in shapes(["key"])]
    for name in LIST_METHODS:
        yield [f"{{{{ ['a', 2, 'a'].{name}"], [shape + " }}" for shape in shapes(["value"])]
    for name, names in sorted(FUNCTIONS.items()):
        tail = "() }}" if name == "joiner" else ".next() }}" if name == "cycler" else " }}"
        yield [f"{{{{ {name}"], [shape + tail for shape in shapes(names)]


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols])

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def strftime_now(format):
        if not isinstance(format, str):
            raise TypeError
        return format

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = strftime_now
    return env


def stop(*_):
    raise TimeoutError


def results_of(group):
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
    signal.signal(signal.SIGALRM, stop)
    env = environment()
    heads, tails = group
    results = {}
    for number, source in enumerate(head + tail for head in heads for tail in tails):
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        try:
            text = env.from_string(source).render()
        except Exception:
            continue
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        if " at 0x" not in text and "<built-in" not in text and len(text) < 1000:
            results[str(number)] = text
    return {"heads": heads, "tails": tails, "results": results}


def in_child(group):
    """A process for each group: what Jinja2 leaves behind would fill the memory."""
    with tempfile.TemporaryFile("w+") as file:
        if (child := os.fork()) == 0:
            json.dump(results_of(group), file)
            file.flush()
            os._exit(0)
        os.waitpid(child, 0)
        file.seek(0)
        return json.load(file)


def main():
    out = [in_child(group) for group in groups()]
    path = pathlib.Path(__file__).parent / "template_calls.json"
    path.write_text(json.dumps({"groups": out}, ensure_ascii=False, separators=(",", ":")) + "\n")


main()
