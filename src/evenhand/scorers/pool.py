"""PooledScorer: batches the score requests of a run and caches the scores.

Samples run concurrently and each scores a text or two; a scorer is fastest with hundreds at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from evenhand.core.aio import cancelled
from evenhand.core.types import Unscored
from evenhand.scorers.base import Scorer, Scores, checked

_Key = tuple[str, str]  # a text and its context
_Pending = asyncio.Future[Scores | Unscored]


class PooledScorer(Scorer):
    """Scores equal texts once, and joins the requests of `wait` seconds into one call of `inner`.

    An LRU cache keeps `kept` results; unscored texts are not cached. An error of `inner` is raised in every caller
    whose text was in the batch.
    """

    name: ClassVar[str] = "pool"

    def __init__(self, inner: Scorer, *, kept: int = 50_000, wait: float = 0.003, batch: int = 256) -> None:
        self.inner = inner
        self.name = inner.name  # pyright: ignore[reportAttributeAccessIssue]
        self.asks_model = inner.asks_model  # pyright: ignore[reportAttributeAccessIssue]
        self.reads_beginnings = inner.reads_beginnings  # pyright: ignore[reportAttributeAccessIssue]
        self.version = inner.version
        self.attributes = inner.attributes
        self.languages = inner.languages
        self.latin_only = inner.latin_only
        self.limits = inner.limits
        self.argument = inner.argument
        self._kept = kept
        self._wait = wait
        self._batch = batch
        self._memo: dict[_Key, Scores] = {}
        self._pending: dict[_Key, _Pending] = {}
        """Texts that are queued or being scored."""
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
        cached: dict[_Key, Scores] = {}
        awaited: dict[_Key, _Pending] = {}
        for key in keys:
            scores = self._recall(key)
            if scores is not None:
                cached[key] = scores
            elif key not in awaited:
                awaited[key] = self._pending.get(key) or self._enqueue(key)
        if awaited:
            # Unlike gather, wait does not cancel the futures with this caller: others may await them, too.
            await asyncio.wait(awaited.values())
        return [cached[key] if key in cached else awaited[key].result() for key in keys]

    async def aclose(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._queue.clear()
        await cancelled(self._tasks)
        for pending in self._pending.values():
            pending.cancel()
        self._pending.clear()
        await self.inner.aclose()

    def _recall(self, key: _Key) -> Scores | None:
        scores = self._memo.pop(key, None)
        if scores is not None:
            self._memo[key] = scores  # the most recently used is last
        return scores

    def _remember(self, key: _Key, scores: Scores) -> None:
        self._memo[key] = scores
        if len(self._memo) > self._kept:
            del self._memo[next(iter(self._memo))]

    def _enqueue(self, key: _Key) -> _Pending:
        loop = asyncio.get_running_loop()
        pending: _Pending = loop.create_future()
        self._pending[key] = pending
        self._queue.append(key)
        if len(self._queue) >= self._batch:
            self._send()
        elif self._timer is None:
            self._timer = loop.call_later(self._wait, self._send)
        return pending

    def _send(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        keys, self._queue = self._queue, []
        task = asyncio.get_running_loop().create_task(self._score(keys))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _score(self, keys: list[_Key]) -> None:
        texts = [text for text, _ in keys]
        contexts = [context for _, context in keys]
        try:
            results = await (self.inner.score(texts, contexts) if any(contexts) else self.inner.score(texts))
            answers = [(key, checked(self.spec, each)) for key, each in zip(keys, results, strict=True)]
        except asyncio.CancelledError:
            for key in keys:
                self._pending.pop(key).cancel()
            raise
        except Exception as error:
            for key in keys:
                pending = self._pending.pop(key)
                pending.set_exception(error)
                pending.exception()  # marks it as retrieved, even if every caller was cancelled
            return
        for key, result in answers:
            if not isinstance(result, Unscored):
                self._remember(key, result)
            self._pending.pop(key).set_result(result)
