"""Replicas of an in-process engine on a Ray cluster, behind one model: `ray/hf/PATH`, `ray/local/NAME`.

The driver forms batches and keeps every replica fed. A replica that dies is replaced, and the requests that it held
are sent again; each request is answered once. Replies depend on a request and its seed alone, so they are those of one
process, in whatever order they come.
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from evenhand.core.aio import cancelled
from evenhand.core.errors import EndpointError, MissingExtraError, ModelError, UsageError
from evenhand.core.events import event
from evenhand.core.types import Generation, Message, Params
from evenhand.models.base import PROVIDERS, Feature, Model, ModelOptions, split_spec
from evenhand.models.endpoints import provider_class
from evenhand.models.ray.connect import check_resources, connect, end, is_lost
from evenhand.models.ray.replica import About, Failure, Replica, engine

PLACING = ("replicas", "gpus_per_replica", "cpus_per_replica")
"""Options that say where a model runs, and change no result."""
_GATHER = 0.002
"""Seconds that requests are gathered before they are sent."""
MOST_LOSSES = 3
"""A request that was lost with this many replicas is given up; the last one had nothing else to do."""
_MOST_STARTS = 5
"""A replica that dies this often without a result is not started again."""


@dataclass(slots=True, eq=False)
class _Request:
    number: int
    messages: Sequence[Message]
    params: Params
    done: asyncio.Future[Generation]
    losses: int = 0


@dataclass(slots=True, eq=False)
class _Place:
    """A replica, or the one that stands in for it after it died."""

    actor: Any
    ready: bool = False
    held: dict[int, _Request] = field(default_factory=dict[int, _Request])
    deaths: int = 0
    """Since the last result."""


@PROVIDERS.register("ray")
class RayModel(Model):
    """The specs `ray/hf/…` and `ray/local/…`: the same model as without `ray/`, on several replicas.

    Options: `replicas` (default 1), `gpus_per_replica` (default 1 for hf/ where Ray has GPUs, else 0; also a
    fraction), `cpus_per_replica` (default 1), and those of the engine.
    """

    features: frozenset[Feature] = frozenset({"logprobs", "seed"})
    free = True
    fixed = True

    def __init__(self, name: str, options: ModelOptions, load: Callable[[], Model] | None = None) -> None:
        """`load` makes the engine in place of the provider that the name begins with."""
        self.spec = f"ray/{name}"
        self._name = name
        placing = {key: options.extra.get(key) for key in PLACING}
        self.endpoints = int(_number(placing, "replicas", 1, least=1))
        provider, model = split_spec(name)
        self._load = load or partial(engine, provider, model, _engine_options(provider, options))
        ray = self._ray = connect()
        gpus = float(provider == "hf" and ray.cluster_resources().get("GPU", 0) >= 1)
        gpus, cpus = _number(placing, "gpus_per_replica", gpus), _number(placing, "cpus_per_replica", 1)
        check_resources(ray, f"A replica of {self.spec}", GPU=gpus, CPU=cpus)
        self._actor = ray.remote(Replica).options(
            num_gpus=gpus, num_cpus=cpus, max_concurrency=1000, scheduling_strategy="SPREAD"
        )
        self._places = [_Place(self._start()) for _ in range(self.endpoints)]
        self._about = self._first_about()
        self.free, self.room = self._about.free, self._about.room
        self.slots = None if self._about.slots is None else self._about.slots * self.endpoints
        self.features = self._about.features
        self._waiting: deque[_Request] = deque()
        self._suspects: list[_Request] = []
        self._count = 0
        self._feeding: asyncio.TimerHandle | None = None
        self._serving: list[asyncio.Task[None]] = []
        self._failure: Exception | None = None
        self._deaths = 0
        self._remarks: tuple[list[str], list[str]] = ([], [])
        self._closed = False

    @classmethod
    def unavailable(cls) -> str | None:
        return str(MissingExtraError("ray/ models", "ray")) if importlib.util.find_spec("ray") is None else None

    def fingerprint(self) -> Mapping[str, Any]:
        """That of the engine, so that runs and cached replies are the same with and without Ray."""
        return {**self._about.fingerprint, "spec": self._name}

    def caveats(self) -> Sequence[str]:
        return self._remarks[0]

    def notes(self) -> Sequence[str]:
        again = [f"{self._deaths:,} replicas died; their requests were sent again"] if self._deaths else []
        return [*self._remarks[1], *again]

    async def generate(self, messages: Sequence[Message], params: Params) -> Generation:
        if self._closed:
            raise UsageError(f"{self.spec} was closed; load it again.")
        if self._failure is not None:
            raise self._failure
        loop = asyncio.get_running_loop()
        if not self._serving:
            self._serving = [loop.create_task(self._serve(place)) for place in self._places]
        self._count += 1
        request = _Request(self._count, tuple(messages), params, loop.create_future())
        self._waiting.append(request)
        self._feed_soon()
        generation = await request.done
        return replace(generation, model=self._name)

    async def aclose(self) -> None:
        self._closed = True
        await cancelled(self._serving)
        if self._feeding is not None:
            self._feeding.cancel()
        for place in self._places:
            end(self._ray, place.actor)

    def _start(self) -> Any:
        return self._actor.remote(self._load, str(Path.cwd()))

    def _first_about(self) -> About:
        """Wait for the replica that is there first; a mistake in the plan shows here, before the first request."""
        asked = [place.actor.about.remote() for place in self._places]
        try:
            [first], _ = self._ray.wait(asked, num_returns=1)
            about: About | Failure = self._ray.get(first)
        except Exception as error:
            if not is_lost(error):
                raise
            self._end_all()
            raise EndpointError(f"A replica of {self.spec} does not start: {_line(error)}", permanent=True) from error
        if isinstance(about, Failure):
            self._end_all()
            raise about.error()
        return about

    def _end_all(self) -> None:
        for place in self._places:
            end(self._ray, place.actor)

    async def _serve(self, place: _Place) -> None:
        """Take in what a replica has finished, for as long as there is one."""
        while True:
            try:
                if not place.ready:
                    about: About | Failure = await place.actor.about.remote()
                    if isinstance(about, Failure):
                        return self._give_up(place, about.error())
                    place.ready = True
                    self._feed()
                finished: list[tuple[int, Generation | Failure]] = await place.actor.collect.remote()
            except Exception as error:
                if not is_lost(error):
                    return self._give_up(place, ModelError(f"{self.spec} failed: {_line(error)}"))
                if not await self._replace(place, error):
                    return None
                continue
            place.deaths = 0
            for number, found in finished:
                self._settle(place.held.pop(number, None), found)
            self._feed()
            if not place.held and not self._waiting:
                with suppress(Exception):
                    caveats, notes = await place.actor.remarks.remote()
                    self._remarks = (sorted({*self._remarks[0], *caveats}), sorted({*self._remarks[1], *notes}))

    def _settle(self, request: _Request | None, found: Generation | Failure) -> None:
        if request is None or request.done.done():  # it was cancelled in the meantime
            return
        if isinstance(found, Failure):
            request.done.set_exception(found.error())
        else:
            request.done.set_result(found)

    def _feed_soon(self) -> None:
        if self._feeding is None:
            self._feeding = asyncio.get_running_loop().call_later(_GATHER, self._feed)

    def _feed(self) -> None:
        """Send waiting requests to the replicas that hold the fewest, as one batch for each."""
        if self._feeding is not None:
            self._feeding.cancel()
            self._feeding = None
        batches: dict[_Place, list[_Request]] = {}

        def send(request: _Request, place: _Place) -> None:
            place.held[request.number] = request
            batches.setdefault(place, []).append(request)

        ready = [place for place in self._places if place.ready and not any(map(_is_suspect, place.held.values()))]
        for suspect in list(self._suspects) if ready else ():
            place = min(ready, key=lambda each: len(each.held))
            ready.remove(place)  # it gets nothing else, and the suspect once it has nothing left to do
            if not place.held:
                self._suspects.remove(suspect)
                send(suspect, place)
            if not ready:
                break
        while self._waiting and ready:
            place = min(ready, key=lambda each: len(each.held))
            if len(place.held) >= self._about.capacity:
                break
            request = self._waiting.popleft()
            if not request.done.done():  # it was cancelled in the meantime
                send(request, place)
        for place, batch in batches.items():
            place.actor.submit.remote([(each.number, each.messages, each.params) for each in batch])

    async def _replace(self, place: _Place, error: Exception) -> bool:
        """Start another replica in place of a dead one, and send its requests again; False if it is no use."""
        place.ready = False
        place.deaths += 1
        self._deaths += 1
        lost, place.held = list(place.held.values()), {}
        event("replica", f"a replica of {self.spec} died: {_line(error)}", level=logging.WARNING, lost=len(lost))
        for request in reversed(lost):
            request.losses += 1
            if _is_suspect(request) and request.losses < MOST_LOSSES:
                self._suspects.append(request)
            elif request.losses < MOST_LOSSES:
                self._waiting.appendleft(request)
            else:
                text = f"{self.spec}: {request.losses} replicas died with this request; they may need more memory."
                self._settle(request, Failure("model", text))
        end(self._ray, place.actor)
        if place.deaths >= _MOST_STARTS:
            self._give_up(place, EndpointError(f"The replicas of {self.spec} die: {_line(error)}", permanent=True))
            return False
        await asyncio.sleep(min(5.0, 0.1 * 2**place.deaths))
        place.actor = self._start()
        self._feed()
        return True

    def _give_up(self, place: _Place, error: Exception) -> None:
        """Go on without a replica; without any, all requests fail."""
        self._places.remove(place)
        self._waiting.extend(place.held.values())
        if self._places:
            self._feed()
            return
        self._failure = error
        for request in (*self._waiting, *self._suspects):
            if not request.done.done():
                request.done.set_exception(error)
        self._waiting.clear()
        self._suspects.clear()


def _is_suspect(request: _Request) -> bool:
    """Whether a request may be what ends replicas: it is tried once more, with nothing beside it."""
    return request.losses >= MOST_LOSSES - 1


def _engine_options(provider: str, options: ModelOptions) -> ModelOptions:
    """The options of the engine, which must be one that computes in its process."""
    factory: Any = provider_class(provider)
    if not getattr(factory, "replicable", False):
        raise UsageError(
            f"ray/ runs engines that compute in their own process, hf/ and local/, not {provider}/; several endpoints "
            "are a pool: base_url=URL,URL."
        )
    if why := factory.unavailable():
        raise UsageError(why)
    return replace(
        options,
        provider=provider,
        extra={name: value for name, value in options.extra.items() if name not in PLACING},
    )


def _number(given: Mapping[str, Any], name: str, default: float, least: float = 0) -> float:
    value = default if given[name] is None else given[name]
    whole = name == "replicas"
    if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)) or not least <= value <= 4096:
        kind = "a whole number from 1" if whole else "a number from 0"
        raise UsageError(f"The model option {name} must be {kind}, not {value!r}.")
    return value


def _line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
