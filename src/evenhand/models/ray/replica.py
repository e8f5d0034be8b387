"""One replica: an in-process engine in a Ray actor, which takes requests in batches and hands back what is finished."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from evenhand.core.errors import EndpointError, EvenhandError, ModelError, UsageError
from evenhand.core.types import Generation, Message, Params
from evenhand.models.base import Feature, Model, ModelOptions
from evenhand.models.endpoints import provider_class
from evenhand.models.ray.connect import enter

Request = tuple[int, Sequence[Message], Params]
"""Its number, and what is asked."""


@dataclass(frozen=True, slots=True)
class Failure:
    """An error as it travels between processes."""

    kind: str
    text: str
    permanent: bool = False

    @classmethod
    def of(cls, error: Exception) -> Failure:
        if isinstance(error, UsageError):
            return cls("usage", str(error))
        if isinstance(error, EndpointError):
            return cls("endpoint", str(error), error.permanent)
        text = str(error) if isinstance(error, EvenhandError) else f"{type(error).__name__}: {error}"
        return cls("model", text)

    def error(self) -> EvenhandError:
        match self.kind:
            case "usage":
                return UsageError(self.text)
            case "endpoint":
                return EndpointError(self.text, permanent=self.permanent)
            case _:
                return ModelError(self.text)


@dataclass(frozen=True, slots=True)
class About:
    """What the driver needs to know of the engine."""

    fingerprint: dict[str, Any]
    features: frozenset[Feature]
    free: bool
    slots: int | None
    room: int
    capacity: int
    """How many requests it should hold at a time, so that it never waits for the next."""


def engine(provider: str, name: str, options: ModelOptions) -> Model:
    """Load the engine itself: what is common to all models is added where the replicas are used."""
    factory: Any = provider_class(provider)
    return factory(name, options)


class Replica:
    """The actor. It never fails to start: an error of the engine is the answer to `about`."""

    def __init__(self, load: Callable[[], Model], folder: str) -> None:
        enter(folder)
        self._model: Model | None = None
        self._failure: Failure | None = None
        try:
            self._model = load()
        except Exception as error:
            self._failure = Failure.of(error)
        self._finished: list[tuple[int, Generation | Failure]] = []
        self._news = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    async def about(self) -> About | Failure:
        """Describe the engine; a fingerprint may take a while, since it hashes the weights."""
        if self._model is None:
            return self._failure or Failure("model", "no engine")
        try:
            fingerprint = await asyncio.to_thread(self._model.fingerprint)
        except Exception as error:
            return Failure.of(error)
        model = self._model
        # An engine with slots computes that many; one that forms batches gets the next while it computes one.
        capacity = model.slots or 2 * int(getattr(model, "batch", 16))
        return About(dict(fingerprint), frozenset(model.features), model.free, model.slots, model.room, capacity)

    async def submit(self, requests: Sequence[Request]) -> None:
        for number, messages, params in requests:
            task = asyncio.ensure_future(self._one(number, messages, params))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def collect(self) -> list[tuple[int, Generation | Failure]]:
        """Wait for the next results and hand over all that are there."""
        await self._news.wait()
        self._news.clear()
        finished, self._finished = self._finished, []
        return finished

    async def remarks(self) -> tuple[list[str], list[str]]:
        """The engine's caveats and notes."""
        return ([], []) if self._model is None else (list(self._model.caveats()), list(self._model.notes()))

    async def _one(self, number: int, messages: Sequence[Message], params: Params) -> None:
        assert self._model is not None
        found: Generation | Failure
        try:
            found = await self._model.generate(messages, params)
        except Exception as error:
            found = Failure.of(error)
        self._finished.append((number, found))
        self._news.set()
