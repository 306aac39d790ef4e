"""Engines, and what they write."""

from __future__ import annotations

import asyncio
import atexit
import operator
import os
import secrets
import weakref
from dataclasses import dataclass, field
from typing import (
    TYPE_CHECKING,
    Any,
    AsyncIterator,
    Callable,
    Generator,
    Iterable,
    Iterator,
    Optional,
    Sequence as _Seq,
    Union,
)

from . import _coppice
from ._loops import until_ready
from .errors import UsageError
from .results import (
    CacheStatistics,
    EngineStatistics,
    Generation,
    Outcome,
    Piece,
    Tree,
    generation_of,
    logprobs_of,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._options import EngineOptions, GenerateOptions

__all__ = ["Constraint", "Engine", "Prefix", "Request", "Sequence", "Stream"]

Callback = Callable[[Piece], Optional[bool]]  #: hears of pieces; ``False`` ends the text
Prompt = Union[str, Iterable[int]]  #: a text, or token ids, to which no BOS is added

# Texts still under way when Python ends are ended while that can still be done.
_engines: weakref.WeakSet[_coppice.Engine] = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    for engine in list(_engines):
        engine.end_all()


def _given(options: Any) -> dict[str, Any]:
    """Without options that are None, which are not set; with what the native module knows."""
    own = {name: value for name, value in options.items() if value is not None}
    if isinstance(own.get("constraint"), Constraint):
        own["constraint"] = own["constraint"]._native
    return own


def _seeded(options: Any) -> dict[str, Any]:
    return {"seed": secrets.randbits(63), **_given(options)}


def _prompt(prompt: Optional[Prompt]) -> dict[str, Any]:
    if prompt is None or isinstance(prompt, str):
        return {"prompt": prompt}
    try:
        return {"tokens": [operator.index(token) for token in prompt]}
    except TypeError:
        raise TypeError(
            f"prompt: a text, or a list of token ids, is needed, not {type(prompt).__name__}"
        ) from None


def _read_all(
    run: _coppice.Run,
    count: int,
    callbacks: _Seq[Optional[Callback]],
    on_end: Optional[Callable[[int, Outcome], None]],
) -> list[Outcome]:
    """Deals with all events of requests; whatever is raised here ends them."""
    outcomes: list[Optional[Outcome]] = [None] * count
    try:
        while (event := run.next()) is not None:
            if len(event) == 2:
                index, result = event
                outcomes[index] = outcome = _outcome_of(result)
                if on_end is not None:
                    on_end(index, outcome)
                continue
            index, *piece = event
            callback = callbacks[index]
            run.answer(callback is None or callback(_piece_of(*piece)) is not False)
    except BaseException:
        run.close()
        raise
    return [outcome for outcome in outcomes if outcome is not None]


def _piece_of(sample: int, text: str, tokens: list[int], logprobs: Any) -> Piece:
    return Piece(text, tokens, sample, logprobs_of(logprobs))


def _outcome_of(result: dict[str, Any]) -> Outcome:
    return Outcome([generation_of(sample) for sample in result["samples"]], result["error"])


class Stream(Iterator[Piece], AsyncIterator[Piece]):
    """A text while it is written: an iterator over its pieces, for ``for`` and ``async for``.

    The engine does not wait for the reader. ``await stream`` waits for the whole text, as
    :attr:`result` does in blocking code. The text ends early by :meth:`cancel`, by ``with`` and
    ``async with`` when they are left, when the stream is dropped, and when the task that reads it
    is cancelled. No stream takes a thread. Streams raise what is wrong with the request
    (:class:`coppice.UsageError`) and what it failed of (:class:`coppice.Error`) where they are read.
    """

    def __init__(self, engine: _coppice.Engine, request: dict[str, Any]):
        self._run = engine.run([{**request, "listened": True}], False)
        self._outcome: Optional[Outcome] = None

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> Piece:
        piece = self._heard(self._run.next())
        if piece is None:
            raise StopIteration
        return piece

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> Piece:
        piece = self._heard(await self._next())
        if piece is None:
            raise StopAsyncIteration
        return piece

    def __await__(self) -> Generator[Any, None, Generation]:
        return self._whole().__await__()

    async def _next(self) -> Any:
        try:
            while (event := self._run.poll()) is False:
                await until_ready(self._run)
        except asyncio.CancelledError:
            self.cancel()
            raise
        return event

    async def _whole(self) -> Generation:
        self._run.skip_pieces()
        while self._heard(await self._next()) is not None:
            pass
        return self._generation()

    def _heard(self, event: Any) -> Optional[Piece]:
        """The piece of an event; None at the end. Raises what failed."""
        if event is not None and len(event) > 2:
            return _piece_of(*event[1:])
        if event is not None:
            self._outcome = _outcome_of(event[1])
            if self._outcome.error is not None:
                raise self._outcome.error
        return None

    def _generation(self) -> Generation:
        if self._outcome is None:
            raise UsageError("result: the stream was closed before its text ended")
        if self._outcome.error is not None:
            raise self._outcome.error
        return self._outcome.samples[0]

    @property
    def result(self) -> Generation:
        """The whole text. Waits for its end; pieces that were not read are dropped."""
        self._run.skip_pieces()
        while self._heard(self._run.next()) is not None:
            pass
        return self._generation()

    def cancel(self) -> None:
        """Asks the text to end, from any thread; its last pieces and its result follow."""
        self._run.stop()

    def close(self) -> None:
        """Ends the text, waits until that is so, and drops what was not read."""
        self._run.close()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Stream:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cancel()
        self._run.skip_pieces()
        while self._run.poll() is not None:
            await until_ready(self._run)


class Constraint:
    """Which texts an answer may be.

    Under it the text is distributed as the target's own where only tokens have a chance that can
    still end in the set. Built once, by the engine whose texts it rules, and then shared.
    ``src/constraints/README.md`` lists what is supported.
    """

    def __init__(self, native: _coppice.Constraint):
        self._native = native

    @staticmethod
    def json(engine: Engine) -> Constraint:
        """Any JSON value."""
        return Constraint(_coppice.Constraint.json(engine._native))

    @staticmethod
    def json_schema(engine: Engine, schema: Union[str, dict[str, Any], bool]) -> Constraint:
        """JSON that a schema of draft 2020-12 admits: a text, or what json.loads() makes of it."""
        if not isinstance(schema, str):
            import json

            schema = json.dumps(schema)
        return Constraint(_coppice.Constraint.json_schema(engine._native, schema))

    @staticmethod
    def regex(engine: Engine, pattern: str) -> Constraint:
        """A text that matches the expression (ECMA-262's syntax) as a whole."""
        return Constraint(_coppice.Constraint.regex(engine._native, pattern))

    @staticmethod
    def choice(engine: Engine, texts: _Seq[str]) -> Constraint:
        """One of these."""
        return Constraint(_coppice.Constraint.choice(engine._native, list(texts)))

    @staticmethod
    def grammar(engine: Engine, gbnf: str) -> Constraint:
        """What the rule ``root`` of a grammar in llama.cpp's GBNF syntax spells."""
        return Constraint(_coppice.Constraint.grammar(engine._native, gbnf))


@dataclass
class Request:
    """One of many: a prompt, and what it asks for."""

    prompt: Optional[Prompt] = None
    n: int = 1  #: samples, with the streams ``stream``, ``stream + 1``, ...
    sequence: Optional[Sequence] = None  #: goes on with this one
    options: dict[str, Any] = field(default_factory=dict)  #: of :meth:`Engine.generate`
    callback: Optional[Callback] = None


class Engine:
    """A target model, a draft model, and their memory.

    ``target`` and ``draft`` are folders as of Hugging Face or GGUF files; without a draft the
    engine decodes plainly. An engine may be used from several threads at once. Python's lock is
    free while it computes.

    Options are those of ``EngineOptions`` in ``src/coppice.h``, by the names of the command line:
    ``device="cuda"``, ``kv_tokens=16384``, ``threads=8``, ``cpu_dtype="bf16"``. ``progress`` is
    called with what is loaded ("target", "draft", "costs") or waited for, and how far, 0 to 1.
    """

    def __init__(
        self,
        target: Union[str, os.PathLike[str]],
        draft: Union[str, os.PathLike[str], None] = None,
        **options: Unpack[EngineOptions],
    ):
        self._native = _coppice.Engine.load({"target": target, "draft": draft, **options})
        _engines.add(self._native)

    def generate(
        self,
        prompt: Prompt,
        *,
        callback: Optional[Callback] = None,
        **options: Unpack[GenerateOptions],
    ) -> Generation:
        """Writes a text after ``prompt``, a text or token ids.

        ``callback`` hears of each :class:`Piece`, on this thread; ``False`` from it ends the text,
        and what it raises comes out here. Ctrl-C raises KeyboardInterrupt within a step.

        Options are those of ``GenerateOptions`` in ``src/coppice.h``. Without a ``seed`` a random
        one is taken, which ``used.seed`` says.
        """
        return _generate(self._native, _request(prompt, options), callback)

    def samples(
        self, prompt: Prompt, n: int, **options: Unpack[GenerateOptions]
    ) -> list[Generation]:
        """``n`` texts after one prompt, written side by side; sample i has stream ``stream`` + i."""
        outcome = self.batch([Request(prompt, n, options=dict(options))])[0]
        if outcome.error is not None:
            raise outcome.error
        return outcome.samples

    def stream(self, prompt: Prompt, **options: Unpack[GenerateOptions]) -> Stream:
        """Begins a text and returns at once: ``for piece in engine.stream(...)``."""
        return Stream(self._native, _request(prompt, options))

    def batch(
        self,
        requests: Iterable[Union[Request, Prompt]],
        *,
        on_end: Optional[Callable[[int, Outcome], None]] = None,
        **options: Unpack[GenerateOptions],
    ) -> list[Outcome]:
        """Writes many requests side by side, each as it would be written alone.

        ``options`` hold for all requests that do not set their own. A request without a stream of
        its own has one that no other of the batch has, counted from ``stream``. A request that
        fails spares the others: its :class:`Outcome` has the error. ``on_end`` hears of each as it
        ends, with its index.
        """
        shared = _seeded(options)
        stream = operator.index(shared.pop("stream", 0))
        own, callbacks = [], []
        for request in requests:
            if not isinstance(request, Request):
                request = Request(request)
            own.append(
                {
                    **_prompt(request.prompt),
                    "n": request.n,
                    "listened": request.callback is not None,
                    "sequence": None if request.sequence is None else request.sequence._native,
                    "options": {**shared, "stream": stream, **_given(request.options)},
                }
            )
            callbacks.append(request.callback)
            stream += max(operator.index(request.n), 1)
        answered = any(callback is not None for callback in callbacks)
        return _read_all(self._native.run(own, answered), len(own), callbacks, on_end)

    def judge_tree(self, prompt: Prompt, **options: Unpack[GenerateOptions]) -> Tree:
        """Grows and judges the first tree after ``prompt``, and stops there."""
        return Tree(**self._native.judge_tree(_request(prompt, options)))

    def new_sequence(self) -> Sequence:
        """An empty text that goes on from call to call."""
        return Sequence(self._native, self._native.new_sequence())

    def prefix(self, prompt: Prompt, *, add_bos: bool = True) -> Prefix:
        """Computes a text that others will begin with, and keeps it in memory."""
        given = _prompt(prompt)
        if "tokens" in given:
            return Prefix(self._native, self._native.prefix_of_tokens(given["tokens"]))
        return Prefix(self._native, self._native.prefix_of_text(given["prompt"], add_bos))

    def tokenize(self, text: str, *, add_bos: bool = True) -> list[int]:
        """The tokens of a text that begins a sequence."""
        return self._native.tokenize(text, add_bos)

    def detokenize(self, tokens: Iterable[int]) -> str:
        """The text of tokens; U+FFFD stands for characters that are not complete."""
        return self._native.detokenize([operator.index(token) for token in tokens])

    def cache(self) -> CacheStatistics:
        """What is in the KV memory."""
        return CacheStatistics(**self._native.cache())

    def statistics(self) -> EngineStatistics:
        """What the engine does, and has done. Does not wait for a step."""
        return EngineStatistics(**self._native.statistics())

    def drop_cache(self) -> None:
        """Frees the KV that no text under way uses and no prefix holds."""
        self._native.drop_cache()

    @property
    def has_tokenizer(self) -> bool:
        return self._native.has_tokenizer

    @property
    def has_draft(self) -> bool:
        return self._native.has_draft

    @property
    def context_length(self) -> int:
        return self._native.context_length

    @property
    def vocab_size(self) -> int:
        return self._native.vocab_size

    @property
    def load_seconds(self) -> float:
        return self._native.load_seconds

    @property
    def warning(self) -> str:
        """Why the engine is slower here than it could be, with the remedy; empty as a rule."""
        return self._native.warning


class Sequence:
    """A text that grows call by call: each call appends its prompt, then what it writes.

    One thread at a time may use a sequence.
    """

    def __init__(self, engine: _coppice.Engine, native: _coppice.Sequence):
        self._engine = engine
        self._native = native

    def generate(
        self,
        prompt: Optional[Prompt] = None,
        *,
        callback: Optional[Callback] = None,
        **options: Unpack[GenerateOptions],
    ) -> Generation:
        """As :meth:`Engine.generate`; without a prompt it goes on where it is."""
        return _generate(self._engine, self._request(prompt, options), callback)

    def stream(self, prompt: Optional[Prompt] = None, **options: Unpack[GenerateOptions]) -> Stream:
        """As :meth:`Engine.stream`."""
        return Stream(self._engine, self._request(prompt, options))

    @property
    def tokens(self) -> list[int]:
        """All tokens so far, prompts included."""
        return self._native.tokens()

    def fork(self) -> Sequence:
        """Another sequence with the same tokens, which shares their KV."""
        return Sequence(self._engine, self._native.fork())

    def rewind(self, length: int) -> None:
        """Takes all but the first ``length`` tokens back."""
        self._native.rewind(length)

    def __len__(self) -> int:
        return self._native.length()

    def _request(self, prompt: Optional[Prompt], options: Any) -> dict[str, Any]:
        return {**_request(prompt, options), "sequence": self._native}


class Prefix:
    """A text that stays in memory, computed, while this lives."""

    def __init__(self, engine: _coppice.Engine, native: _coppice.Prefix):
        self._engine = engine
        self._native = native

    def begin(self) -> Sequence:
        """A sequence that begins with it."""
        return Sequence(self._engine, self._native.begin())

    @property
    def tokens(self) -> list[int]:
        return self._native.tokens()


def _request(prompt: Optional[Prompt], options: Any) -> dict[str, Any]:
    return {**_prompt(prompt), "options": _seeded(options)}


def _generate(
    engine: _coppice.Engine,
    request: dict[str, Any],
    callback: Optional[Callback],
) -> Generation:
    answered = callback is not None
    run = engine.run([{**request, "listened": answered}], answered)
    outcome = _read_all(run, 1, [callback], None)[0]
    if outcome.error is not None:
        raise outcome.error
    return outcome.samples[0]
