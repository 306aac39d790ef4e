"""Streams in event loops."""

import asyncio
import gc
import threading
import time

import pytest

import coppice
from conftest import REPEATABLE, STORIES

ENDLESS = {"max_new_tokens": 480, "ignore_eos": True}


def until_idle(engine, seconds=60):
    """Waits until the engine writes nothing."""
    end = time.monotonic() + seconds
    while (now := engine.statistics()).running + now.waiting > 0:
        assert time.monotonic() < end
        time.sleep(0.01)


def test_pieces_come_in_a_loop(engine):
    text = engine.generate("The captain", temperature=0.8, **REPEATABLE)

    async def read():
        stream = engine.stream("The captain", temperature=0.8, **REPEATABLE)
        pieces = [piece async for piece in stream]
        return pieces, stream.result

    pieces, result = asyncio.run(read())
    assert len(pieces) > 2 and result.tokens == text.tokens
    assert "".join(piece.text for piece in pieces) == text.text


def test_a_loop_goes_on_while_texts_are_written(engine):
    async def read():
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                await asyncio.sleep(0.001)
                ticks += 1

        ticking = asyncio.create_task(tick())
        text = await engine.stream("The captain", max_new_tokens=64, ignore_eos=True)
        ticking.cancel()
        return ticks, text

    ticks, text = asyncio.run(read())
    assert ticks > 10 and len(text.tokens) == 64


def test_a_thousand_requests_take_no_threads(engine):
    engine.generate("x", max_new_tokens=1)
    before = threading.active_count(), _threads()

    async def read():
        streams = [
            engine.stream("A dog", max_new_tokens=2, ignore_eos=True, stream=i, temperature=1.0)
            for i in range(1000)
        ]
        during = threading.active_count(), _threads()
        return during, await asyncio.gather(*streams)

    during, texts = asyncio.run(read())
    assert during == before
    assert len(texts) == 1000 and all(len(text.tokens) == 2 for text in texts)


def _threads():
    with open("/proc/self/status") as status:
        return next(line for line in status if line.startswith("Threads:"))


def test_a_cancelled_task_ends_its_text(engine):
    async def read():
        async def listen(streams):
            streams.append(engine.stream("The captain", **ENDLESS))
            async for _ in streams[0]:
                heard.set()

        heard, streams = asyncio.Event(), []
        task = asyncio.create_task(listen(streams))
        await heard.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return await streams[0]

    text = asyncio.run(read())
    assert text.finish_reason == "cancelled" and len(text.tokens) < 480


def test_a_timeout_ends_the_text(engine):
    async def read():
        streams = [engine.stream("The captain", stream=i, **ENDLESS) for i in range(32)]
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.gather(*streams), 0.01)
        return [(await stream).finish_reason for stream in streams]

    assert set(asyncio.run(read())) == {"cancelled"}


def test_a_dropped_stream_ends_without_waiting(engine):
    async def read():
        async for _ in engine.stream("The captain", **ENDLESS):
            break
        async with engine.stream("The captain", **ENDLESS) as stream:
            await stream.__anext__()
        assert engine.statistics().running <= 1  # the one that was dropped

    new_tokens = engine.statistics().new_tokens
    asyncio.run(read())
    gc.collect()
    until_idle(engine)
    assert engine.statistics().new_tokens - new_tokens < 2 * 480


def test_what_is_wrong_comes_out_where_it_is_awaited(engine):
    async def read(**options):
        return await engine.stream("The captain", **options)

    with pytest.raises(coppice.UsageError, match="temperature"):
        asyncio.run(read(temperature=-1.0))
    assert asyncio.run(read(**REPEATABLE)).text  # another loop


def test_a_dropped_engine_ends_its_texts():
    engine = coppice.Engine(STORIES / "target", threads=1, kv_tokens=512)
    stream = engine.stream("The captain", **ENDLESS)
    next(stream)
    del engine, stream  # the second waits for the step at hand
    gc.collect()
