"""How event loops of asyncio hear of streams whose next event is there."""

from __future__ import annotations

import asyncio
import itertools
import weakref

from . import _coppice

_keys = itertools.count()


class _Bell:
    """One descriptor for all streams of a loop, which the engine's threads make readable."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._waker = _coppice.Waker()
        self._waiting: dict[int, asyncio.Future[None]] = {}
        loop.add_reader(self._waker.fileno(), self._hear)

    def _hear(self) -> None:
        for key in self._waker.drain():
            future = self._waiting.pop(key, None)
            if future is not None and not future.done():
                future.set_result(None)

    async def until_ready(self, run: _coppice.Run) -> None:
        key = next(_keys)
        if not run.watch(self._waker, key):
            return
        self._waiting[key] = future = asyncio.get_running_loop().create_future()
        try:
            await future
        finally:
            self._waiting.pop(key, None)


_bells: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Bell] = weakref.WeakKeyDictionary()


async def until_ready(run: _coppice.Run) -> None:
    """Returns when poll() of a run has an event, or its end."""
    loop = asyncio.get_running_loop()
    bell = _bells.get(loop)
    if bell is None:
        bell = _bells[loop] = _Bell(loop)
    await bell.until_ready(run)
