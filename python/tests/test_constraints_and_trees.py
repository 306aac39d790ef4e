"""Constraints, and judged trees."""

import json

import numpy as np
import pytest

import coppice
from coppice import Constraint
from conftest import REPEATABLE

SCHEMA = {
    "type": "object",
    "properties": {"name": {"enum": ["cat", "dog"]}, "age": {"type": "integer", "maximum": 30}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("schema", [SCHEMA, json.dumps(SCHEMA)])
def test_a_schema_holds(engine, schema):
    constraint = Constraint.json_schema(engine, schema)
    samples = engine.samples("A cat as JSON", 8, constraint=constraint, temperature=1.0, seed=1)
    whole = [json.loads(text.text) for text in samples if text.finish_reason == "eos"]
    assert whole
    for value in whole:
        assert value["name"] in ("cat", "dog") and set(value) == {"name", "age"}
        assert isinstance(value["age"], int) and value["age"] <= 30


def test_choices_expressions_and_grammars_hold(engine):
    for constraint, texts in (
        (Constraint.choice(engine, ["yes", "no"]), {"yes", "no"}),
        (Constraint.regex(engine, "[ab]{2}"), {"aa", "ab", "ba", "bb"}),
        (Constraint.grammar(engine, 'root ::= "sea" | "land"'), {"sea", "land"}),
    ):
        samples = engine.samples("Is it?", 4, constraint=constraint, temperature=1.0)
        assert {text.text for text in samples} <= texts
    json.loads(engine.generate("x", constraint=Constraint.json(engine), max_new_tokens=200).text)


def test_wrong_constraints_say_where(engine):
    with pytest.raises(coppice.UsageError):
        Constraint.regex(engine, "(")
    with pytest.raises(coppice.UsageError):
        Constraint.json_schema(engine, {"type": "animal"})


def test_a_tree_is_arrays(engine):
    tree = engine.judge_tree("The captain", temperature=0.8, **REPEATABLE)
    assert len(tree) == 9
    for name in ("token", "parent", "depth", "rank"):
        assert getattr(tree, name).dtype == np.int32
    for name in ("draft_prob", "path_prob", "value", "target_prob"):
        assert getattr(tree, name).dtype == np.float64
    assert tree.accepted.dtype == tree.looked_up.dtype == np.bool_
    parent = tree.parent[1:]
    assert tree.parent[0] == -1 and (parent < np.arange(1, 9)).all()
    assert (tree.depth[1:] == tree.depth[parent] + 1).all()
    np.testing.assert_allclose(tree.path_prob[1:], tree.path_prob[parent] * tree.draft_prob[1:])
    assert tree.accepted[parent[tree.accepted[1:]]].all()
    # What the step brings is how the text begins.
    text = engine.generate("The captain", temperature=0.8, **REPEATABLE)
    path = [int(token) for token in tree.token[1:][tree.accepted[1:]]] + [tree.bonus]
    assert text.tokens[: len(path)] == path
    token = tree.token.copy()
    del tree  # the arrays own their memory
    assert len(token) == 9
