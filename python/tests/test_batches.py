"""Many requests at once, and samples."""

import pytest

import coppice
from conftest import REPEATABLE


def test_requests_are_written_as_alone(engine):
    prompts = ["The captain", "A dog", engine.tokenize("Once upon a time")]
    ended = []
    outcomes = engine.batch(
        prompts, on_end=lambda index, outcome: ended.append((index, outcome)), temperature=0.8,
        **REPEATABLE,
    )  # fmt: skip
    assert sorted(index for index, _ in ended) == [0, 1, 2]
    assert all(outcomes[index] is outcome for index, outcome in ended)
    for stream, (prompt, outcome) in enumerate(zip(prompts, outcomes)):
        alone = engine.generate(prompt, temperature=0.8, stream=stream, **REPEATABLE)
        assert outcome.samples[0].tokens == alone.tokens and outcome.text == alone.text
        assert outcome.error is None


def test_a_request_may_go_on_with_a_sequence_that_is_empty(engine):
    sequence = engine.new_sequence()
    (outcome,) = engine.batch([coppice.Request("A dog", sequence=sequence)], **REPEATABLE)
    assert sequence.tokens[-len(outcome.samples[0].tokens) :] == outcome.samples[0].tokens


def test_a_request_that_fails_spares_the_others(engine):
    outcomes = engine.batch(
        ["A dog", coppice.Request("A dog", options={"temperature": -1.0}), [1] * 600],
        max_new_tokens=4,
    )
    assert outcomes[0].text
    assert isinstance(outcomes[1].error, coppice.UsageError)
    with pytest.raises(coppice.UsageError, match="temperature"):
        outcomes[1].text
    assert outcomes[2].error is not None and "512" in str(outcomes[2].error)


def test_samples_have_streams_of_their_own(engine):
    samples = engine.samples("The captain", 3, temperature=0.8, **REPEATABLE)
    for stream, sample in enumerate(samples):
        alone = engine.generate("The captain", temperature=0.8, stream=stream, **REPEATABLE)
        assert sample.tokens == alone.tokens
    assert len({sample.text for sample in samples}) == 3
    # The next request's stream is behind them.
    outcomes = engine.batch(
        [coppice.Request("The captain", n=3), "The captain"], temperature=0.8, **REPEATABLE
    )
    assert [one.tokens for one in outcomes[0].samples] == [one.tokens for one in samples]
    alone = engine.generate("The captain", temperature=0.8, stream=3, **REPEATABLE)
    assert outcomes[1].samples[0].tokens == alone.tokens


def test_a_requests_own_callback_hears_its_samples(engine):
    pieces = []
    requests = ["A dog", coppice.Request("The captain", n=2, callback=pieces.append)]
    outcomes = engine.batch(requests, temperature=0.8, **REPEATABLE)
    for sample in (0, 1):
        heard = "".join(piece.text for piece in pieces if piece.sample == sample)
        assert heard == outcomes[1].samples[sample].text


def test_what_on_end_raises_ends_the_batch(engine):
    def hear(index, outcome):
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        engine.batch(["A dog"] * 8, on_end=hear, max_new_tokens=64)


def test_an_empty_batch(engine):
    assert engine.batch([]) == []
