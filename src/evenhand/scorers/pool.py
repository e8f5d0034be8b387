"""PooledScorer: what a run puts around a scorer, so that many small questions become few large ones.

Samples are worked on concurrently and each asks about a text or two; a scorer is at its best with hundreds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from evenhand.scorers.base import Scorer, Scores
from evenhand.types import Unscored

_Key = tuple[str, str]  # a text and its context
_Place = asyncio.Future[Scores | Unscored]


class PooledScorer(Scorer):
    """Scores equal texts once and gathers what is asked for within `wait` seconds into one call of `inner`.

    `kept` results are remembered, the least recently used are forgotten first; texts that could not be scored are
    asked for again. An error of `inner` reaches everyone whose text was in that call.
    """

    name: ClassVar[str] = "pool"

    def __init__(self, inner: Scorer, *, kept: int = 50_000, wait: float = 0.003, batch: int = 256) -> None:
        self.inner = inner
        self.name = inner.name  # pyright: ignore[reportAttributeAccessIssue]
        self.asks_model = inner.asks_model  # pyright: ignore[reportAttributeAccessIssue]
        self.version = inner.version
        self.attributes = inner.attributes
        self.languages = inner.languages
        self.argument = inner.argument
        self._kept = kept
        self._wait = wait
        self._batch = batch
        self._memo: dict[_Key, Scores] = {}
        self._places: dict[_Key, _Place] = {}
        """What is waiting or under way."""
        self._queue: list[_Key] = []
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def spec(self) -> str:
        return self.inner.spec

    @property
    def id(self) -> str:
        return self.inner.id

    def fingerprint(self) -> Mapping[str, Any]:
        return self.inner.fingerprint()

    async def score(self, texts: Sequence[str], contexts: Sequence[str] | None = None) -> list[Scores | Unscored]:
        keys = list(zip(texts, contexts or [""] * len(texts), strict=True))
        found: dict[_Key, Scores] = {}
        awaited: dict[_Key, _Place] = {}
        for key in keys:
            scores = self._recall(key)
            if scores is not None:
                found[key] = scores
            elif key not in awaited:
                awaited[key] = self._places.get(key) or self._enqueue(key)
        if awaited:
            # Unlike gather, wait leaves the places alone when this caller is cancelled: others may stand there too.
            await asyncio.wait(awaited.values())
        return [found[key] if key in found else awaited[key].result() for key in keys]

    async def aclose(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._queue.clear()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for place in self._places.values():
            place.cancel()
        self._places.clear()
        await self.inner.aclose()

    def _recall(self, key: _Key) -> Scores | None:
        scores = self._memo.pop(key, None)
        if scores is not None:
            self._memo[key] = scores  # the most recently used stands last
        return scores

    def _remember(self, key: _Key, scores: Scores) -> None:
        self._memo[key] = scores
        if len(self._memo) > self._kept:
            del self._memo[next(iter(self._memo))]

    def _enqueue(self, key: _Key) -> _Place:
        loop = asyncio.get_running_loop()
        place: _Place = loop.create_future()
        self._places[key] = place
        self._queue.append(key)
        if len(self._queue) >= self._batch:
            self._send()
        elif self._timer is None:
            self._timer = loop.call_later(self._wait, self._send)
        return place

    def _send(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        keys, self._queue = self._queue, []
        task = asyncio.get_running_loop().create_task(self._ask(keys))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ask(self, keys: list[_Key]) -> None:
        texts = [text for text, _ in keys]
        contexts = [context for _, context in keys]
        try:
            results = await (self.inner.score(texts, contexts) if any(contexts) else self.inner.score(texts))
            answers = list(zip(keys, results, strict=True))
        except asyncio.CancelledError:
            for key in keys:
                self._places.pop(key).cancel()
            raise
        except Exception as error:
            for key in keys:
                place = self._places.pop(key)
                place.set_exception(error)
                place.exception()  # seen, even where every caller was cancelled
            return
        for key, result in answers:
            if not isinstance(result, Unscored):
                self._remember(key, result)
            self._places.pop(key).set_result(result)
