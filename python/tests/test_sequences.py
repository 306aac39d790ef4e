"""Sequences, forks, prefixes, the cache."""

import gc

import pytest

import coppice
from conftest import REPEATABLE, STORIES


def test_a_sequence_goes_on(engine):
    sequence = engine.new_sequence()
    first = sequence.generate("The captain", **REPEATABLE)
    assert sequence.tokens[-len(first.tokens) :] == first.tokens
    second = sequence.generate(" and", **REPEATABLE)
    assert second.statistics.prompt_tokens > len(first.tokens)
    assert len(sequence) == second.statistics.prompt_tokens + len(second.tokens)


def test_forks_go_on_alike_and_apart(engine):
    sequence = engine.new_sequence()
    sequence.generate("The captain", temperature=0.8, **REPEATABLE)
    length = len(sequence)
    forks = [sequence.fork() for _ in range(3)]
    texts = [
        fork.generate(temperature=0.8, stream=stream, **REPEATABLE).tokens
        for fork, stream in zip(forks, (1, 1, 2))
    ]
    assert texts[0] == texts[1] != texts[2]
    assert len(sequence) == length
    forks[0].rewind(length)
    assert forks[0].tokens == sequence.tokens
    with pytest.raises(coppice.UsageError):
        forks[0].rewind(length + 1)


def test_a_sequence_in_a_batch(engine):
    sequence = engine.new_sequence()
    sequence.generate("The captain", **REPEATABLE)
    fork = sequence.fork()
    alone = fork.generate(" and", **REPEATABLE).tokens
    outcomes = engine.batch([coppice.Request(" and", sequence=sequence), "A dog"], **REPEATABLE)
    assert outcomes[0].samples[0].tokens == alone


def test_a_sequence_streams(engine):
    sequence = engine.new_sequence()
    pieces = list(sequence.stream("The captain", **REPEATABLE))
    text = engine.generate("The captain", **REPEATABLE).text
    assert "".join(piece.text for piece in pieces) == text


def test_an_empty_sequence(engine):
    sequence = engine.new_sequence()
    assert len(sequence) == 0 and sequence.tokens == []
    sequence.rewind(0)
    assert len(sequence.fork()) == 0
    with pytest.raises(coppice.UsageError):
        sequence.generate()
    assert len(sequence.generate("A dog", max_new_tokens=3).tokens) == 3


def test_a_dropped_streams_sequence_is_free_at_once(engine):
    sequence = engine.new_sequence()
    stream = sequence.stream("The captain", max_new_tokens=480, ignore_eos=True)
    next(stream)
    with pytest.raises(coppice.UsageError):
        sequence.generate(max_new_tokens=1)  # one text at a time
    del stream
    assert len(sequence.generate(max_new_tokens=1).tokens) == 1


def test_a_prefix_is_computed_once(engine):
    prefix = engine.prefix("Once upon a time there was a little house by the sea")
    text = prefix.begin().generate(" and an old captain", max_new_tokens=4)
    assert text.statistics.cached_tokens == len(prefix.tokens)
    assert engine.prefix(prefix.tokens).tokens == prefix.tokens
    assert engine.cache().target_shared >= len(prefix.tokens)
    engine.drop_cache()
    assert engine.cache().target_shared >= len(prefix.tokens)  # pinned


def test_an_engine_lives_as_long_as_what_it_made():
    sequence = coppice.Engine(STORIES / "target", threads=1, kv_tokens=512).new_sequence()
    gc.collect()
    assert len(sequence.generate("The captain", max_new_tokens=4).tokens) == 4


def test_an_engine_counts(engine):
    before = engine.statistics()
    text = engine.generate("The captain", **REPEATABLE)
    after = engine.statistics()
    assert after.new_tokens - before.new_tokens == len(text.tokens)
    assert after.steps - before.steps == text.statistics.steps
    assert after.drafted_by_depth.sum() == after.drafted
    assert (after.accepted_by_depth <= after.drafted_by_depth).all()
    assert after.running == after.waiting == 0
