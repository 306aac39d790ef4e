"""Texts, streams, callbacks, and how they end."""

import math
import os
import signal
import threading

import pytest

import coppice
from conftest import REPEATABLE


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_text_is_the_commands(engine, generated, temperature):
    expected = generated(
        "The captain", "--temperature", temperature, "--acceptance", "coupled", "--tree-size", 8,
        "--seed", 5, "--max-new-tokens", 24, "--logprobs",
    )  # fmt: skip
    text = engine.generate("The captain", temperature=temperature, logprobs=True, **REPEATABLE)
    assert text.text == expected["text"] == str(text)
    assert text.tokens == expected["tokens"]
    assert text.finish_reason == expected["finish_reason"]
    assert text.statistics.steps == expected["steps"]
    assert text.statistics.accepted_length == pytest.approx(expected["accepted_length"])
    assert text.used.acceptance == "coupled" and text.used.policy == expected["policy"]
    assert [one.token for one in text.logprobs] == text.tokens
    for one, theirs in zip(text.logprobs, expected["logprobs"]):
        assert one.logprob == pytest.approx(theirs["logprob"], abs=1e-4)
        assert len(one.top) == 5


def test_tokens_are_a_prompt(engine):
    tokens = engine.tokenize("The captain")
    assert engine.detokenize(tokens).strip() == "The captain"
    by_tokens = engine.generate(tokens, temperature=0.8, **REPEATABLE)
    assert by_tokens.tokens == engine.generate("The captain", temperature=0.8, **REPEATABLE).tokens


def test_a_stream_is_the_text(engine):
    text = engine.generate("The captain", temperature=0.8, **REPEATABLE)
    stream = engine.stream("The captain", temperature=0.8, **REPEATABLE)
    pieces = list(stream)
    assert len(pieces) > 2
    assert "".join(piece.text for piece in pieces) == text.text
    assert [token for piece in pieces for token in piece.tokens] == text.tokens
    assert stream.result.tokens == text.tokens
    assert list(stream) == []


def test_a_streams_result_needs_no_reading(engine):
    text = engine.generate("The captain", **REPEATABLE)
    assert engine.stream("The captain", **REPEATABLE).result.text == text.text


def test_streams_end_when_they_are_left(engine):
    with engine.stream("The captain", max_new_tokens=480, ignore_eos=True) as stream:
        next(stream)
    assert list(stream) == []
    with pytest.raises(coppice.UsageError, match="closed before its text ended"):
        stream.result
    del stream
    for piece in engine.stream("The captain", max_new_tokens=480, ignore_eos=True):
        break


def test_a_stream_tells_what_fails(engine):
    stream = engine.stream("The captain", temperature=-1.0)
    with pytest.raises(coppice.UsageError, match="temperature"):
        list(stream)


def test_pieces_reach_a_callback(engine):
    pieces = []
    text = engine.generate("The captain", callback=pieces.append, temperature=0.8, **REPEATABLE)
    assert "".join(piece.text for piece in pieces) == text.text


def test_a_callback_ends_its_text(engine):
    heard = []

    def hear(piece):
        heard.append(piece.text)
        return False

    text = engine.generate("The captain", callback=hear, **REPEATABLE)
    assert text.finish_reason == "cancelled" and text.text == "".join(heard) and len(heard) == 1


def test_what_a_callback_raises_comes_out(engine):
    def hear(piece):
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        engine.generate("The captain", callback=hear, **REPEATABLE)
    assert engine.generate("The captain", **REPEATABLE).text  # the engine stays usable


def test_a_callback_may_use_the_engine(engine):
    inner = []

    def hear(piece):
        inner.append(engine.generate("A dog", max_new_tokens=2).tokens)

    engine.generate("The captain", callback=hear, **REPEATABLE)
    assert inner and all(len(tokens) == 2 for tokens in inner)


def test_ctrl_c_ends_a_generation(engine):
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        while True:
            engine.samples("The captain", 64, max_new_tokens=480, ignore_eos=True, temperature=1.0)
    timer.join()
    assert engine.generate("The captain", **REPEATABLE).text


def test_pythons_lock_is_free(engine):
    # Were it held, this thread would run when the text has reached its length.
    stream = engine.stream("The captain", max_new_tokens=480, ignore_eos=True)
    results = []
    reader = threading.Thread(target=lambda: results.append(stream.result))
    reader.start()
    stream.cancel()
    reader.join()
    assert results[0].finish_reason == "cancelled"


def test_threads_share_an_engine(engine):
    alone = engine.generate("The captain", temperature=0.8, **REPEATABLE).tokens
    texts = []

    def write():
        texts.append(engine.generate("The captain", temperature=0.8, **REPEATABLE).tokens)

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == [alone] * 4


def test_a_seed_is_random_unless_given(engine):
    seeds = {engine.generate("x", max_new_tokens=1, temperature=1.0).used.seed for _ in range(4)}
    assert len(seeds) == 4
    assert engine.generate("x", max_new_tokens=1, seed=2**64 - 1).used.seed == 2**64 - 1


def test_a_text_stops(engine):
    text = engine.generate("The captain", **REPEATABLE).text
    word = text.split()[3]
    stopped = engine.generate("The captain", stop=word, **REPEATABLE)
    assert stopped.finish_reason == "stop" and word not in stopped.text
    assert engine.generate("The captain", stop=["Zanzibar", word], **REPEATABLE).text == stopped.text


def test_policies_by_name(engine):
    greedy = engine.generate("The captain", max_new_tokens=24)
    for options in (
        {"policy": "chain", "tree_size": 3},
        {"policy": "specinfer", "widths": [2, 1, 1]},
        {"policy": "sequoia", "tree_size": 8, "acceptance_vector": [0.6, 0.2]},
        {"policy": "none"},
        {"use_draft": False, "lookup": "text"},
    ):
        text = engine.generate("The captain", max_new_tokens=24, **options)
        assert text.tokens == greedy.tokens
        assert text.used.policy == options.get("policy", text.used.policy)


def test_tokens_are_stopped_biased_and_penalised(engine):
    tokens = engine.generate("The captain", max_new_tokens=24).tokens
    stopped = engine.generate("The captain", max_new_tokens=24, stop_tokens=[tokens[4]])
    assert stopped.finish_reason == "stop" and len(stopped.tokens) <= 4
    late = engine.generate(
        "The captain", max_new_tokens=24, stop_tokens=[tokens[4]], min_new_tokens=12
    )
    assert len(late.tokens) >= 12
    for bias in ({tokens[0]: -100.0}, [(tokens[0], -100.0)]):
        biased = engine.generate("The captain", max_new_tokens=4, logit_bias=bias)
        assert biased.tokens[0] != tokens[0] and biased.used.biased_tokens == 1
    # A small model's greedy text repeats itself.
    plain = engine.generate("The captain", max_new_tokens=64)
    varied = engine.generate(
        "The captain", max_new_tokens=64, presence_penalty=2.0, frequency_penalty=2.0
    )
    assert len(set(varied.tokens)) > len(set(plain.tokens))
    assert varied.used.presence_penalty == varied.used.frequency_penalty == 2.0


def test_pieces_have_logprobs(engine):
    options = dict(temperature=0.8, logprobs=True, top_logprobs=2, **REPEATABLE)
    stream = engine.stream("The captain", **options)
    heard = [one for piece in stream for one in piece.logprobs or []]
    assert heard == stream.result.logprobs and len(heard) == len(stream.result.tokens)
    assert all(len(one.top) <= 2 for one in heard)
    assert all(piece.logprobs is None for piece in engine.stream("The captain", **REPEATABLE))


def test_texts_are_looked_up(engine):
    prompt = "One two three four five six. One two three four five six. One two three"
    options = dict(acceptance="coupled", temperature=0.4, seed=5, max_new_tokens=24)
    plain = engine.generate(prompt, policy="none", lookup="none", **options)
    for lookup in ("text", "engine"):
        text = engine.generate(prompt, lookup=lookup, use_draft=False, tree_size=8, **options)
        assert text.tokens == plain.tokens and text.used.lookup == lookup
        assert text.statistics.looked_up >= text.statistics.looked_up_accepted > 0
    assert plain.statistics.looked_up == 0


def test_filters_and_penalties_hold(engine):
    def most(**options):
        return engine.generate(
            "The captain", seed=5, max_new_tokens=32, temperature=1.0, logprobs=True, **options
        )

    assert all(len(one.top) == 20 for one in most(top_logprobs=20).logprobs)
    # What is filtered out has no chance.
    for one in most(top_logprobs=5, top_k=2).logprobs:
        assert sum(logprob > -math.inf for _, logprob in one.top) == 2
    for one in most(top_logprobs=5, min_p=0.5).logprobs:
        chances = [logprob for _, logprob in one.top if logprob > -math.inf]
        assert min(chances) >= chances[0] + math.log(0.5) - 1e-5
    assert all(one.logprob == 0.0 for one in most(top_p=1e-6).logprobs)
    assert all(one.logprob == 0.0 for one in most(top_k=1).logprobs)
    plain = engine.generate("The captain", max_new_tokens=64)
    varied = engine.generate("The captain", max_new_tokens=64, repetition_penalty=1.5)
    assert len(set(varied.tokens)) > len(set(plain.tokens))
