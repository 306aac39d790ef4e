"""What is wrong, by kind, in one line."""

import pytest

import coppice
from coppice import _options
from conftest import STORIES


def test_kinds(engine):
    with pytest.raises(coppice.Error, match="/nowhere") as failure:
        coppice.Engine("/nowhere")
    assert failure.value.kind == "failure" and not isinstance(failure.value, ValueError)
    with pytest.raises(ValueError, match="kv_dtype 'f64' is unknown; use one of auto") as usage:
        coppice.Engine(STORIES / "target", kv_dtype="f64")
    assert usage.value.kind == "usage" and isinstance(usage.value, coppice.Error)
    assert "\n" not in str(usage.value)
    with pytest.raises(coppice.UsageError, match="tree-size"):
        engine.generate("x", tree_size=100000)


@pytest.mark.parametrize("option, value, message", [
    ("temperature", "hot", "temperature: a number is needed, not str"),
    ("top_k", 1.5, "top_k: a whole number of 32 bits is needed, not float"),
    ("seed", -1, "seed: a whole number from 0, of 64 bits is needed, not int"),
    ("ignore_eos", "no", "ignore_eos: True or False is needed, not str"),
    ("constraint", "json", "constraint: a Constraint is needed, not str"),
    ("policy", 4, "policy: a text is needed, not int"),
    ("temprature", 1.0, "there is no option 'temprature'"),
])  # fmt: skip
def test_wrong_types_and_names(engine, option, value, message):
    with pytest.raises(TypeError) as error:
        engine.generate("x", **{option: value})
    assert str(error.value) == message


def test_a_prompt_is_a_text_or_tokens(engine):
    for prompt in (5, [1.5], ["a"], b"x"[:0].decode):
        with pytest.raises(TypeError, match="prompt: a text, or a list of token ids"):
            engine.generate(prompt)
    with pytest.raises(coppice.UsageError):
        engine.generate([10**6])


def test_all_options_are_known(engine):
    for options, use in (
        (_options.GenerateOptions, lambda given: engine.generate("x", **given)),
        (_options.EngineOptions, lambda given: coppice.Engine(STORIES / "target", **given)),
    ):
        for name in options.__annotations__:
            if name == "progress":
                continue
            with pytest.raises(TypeError) as error:
                use({name: object()})
            assert "there is no option" not in str(error.value)


def test_progress_is_heard():
    events = []
    coppice.Engine(
        STORIES / "target", STORIES / "draft", progress=lambda *event: events.append(event)
    )
    assert {what for what, _ in events} >= {"target", "draft"}
    assert events[-1][1] == 1.0
