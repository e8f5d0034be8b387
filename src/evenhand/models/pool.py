"""Several endpoints behind one name: each call goes to the least busy one, and those that fail rest for a while."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from evenhand.errors import EndpointError, ModelError
from evenhand.http import Clock, RefusedError, Sleep
from evenhand.models.base import Feature, Model, ModelOptions, close_all
from evenhand.types import Generation, Message, Params

SHORTEST_REST, LONGEST_REST = 1.0, 60.0
"""Seconds; the rest doubles with each failure after it, until a call succeeds."""


@dataclass(slots=True, eq=False)
class _Member:
    model: Model
    in_flight: int = 0
    calls: int = 0
    error: ModelError | None = None
    """The last error, if no call has succeeded since."""
    failures: int = 0
    """Failures since the last success; calls that were in flight together count as one."""
    rests: int = 0
    until: float = 0.0
    """When its rest ends."""

    @property
    def endpoint(self) -> str:
        return str(self.model.fingerprint().get("endpoint"))

    def failed(self, error: ModelError, began: int, now: float) -> None:
        """Begin a rest; calls that began before the last one do not make it longer."""
        self.error = error
        if began == self.rests:
            self.rests += 1
            self.failures += 1
            self.until = now + min(LONGEST_REST, SHORTEST_REST * 2 ** (self.failures - 1))

    def succeeded(self, began: int) -> None:
        if began == self.rests:
            self.failures, self.error = 0, None


class PoolModel(Model):
    """A model behind several endpoints; a call is tried at each of them, and `retries` times more."""

    def __init__(
        self, models: Sequence[Model], retries: int = 6, *, sleep: Sleep = asyncio.sleep, clock: Clock = time.monotonic
    ) -> None:
        self.spec = models[0].spec
        self.free = all(model.free for model in models)
        self.endpoints = len(models)
        self._members = [_Member(model) for model in models]
        self._retries = retries
        self._sleep = sleep
        self._clock = clock

    @property
    def features(self) -> frozenset[Feature]:  # pyright: ignore[reportIncompatibleVariableOverride]
        first, *others = (member.model.features for member in self._members)
        return first.intersection(*others)

    def fingerprint(self) -> Mapping[str, Any]:
        first = self._members[0].model.fingerprint()
        return {**first, "spec": self.spec, "endpoint": sorted(member.endpoint for member in self._members)}

    def caveats(self) -> Sequence[str]:
        return list(dict.fromkeys(caveat for member in self._members for caveat in member.model.caveats()))

    def notes(self) -> Sequence[str]:
        return list(dict.fromkeys(note for member in self._members for note in member.model.notes()))

    def learned(self) -> Mapping[str, Any]:
        found = {member.endpoint: dict(learned) for member in self._members if (learned := member.model.learned())}
        return {"endpoints": found} if found else {}

    def recall(self, learned: Mapping[str, Any]) -> None:
        for member in self._members:
            member.model.recall(learned.get("endpoints", {}).get(member.endpoint, {}))

    async def generate(self, messages: Sequence[Message], params: Params) -> Generation:
        started = time.perf_counter()
        failures = 0
        while True:
            member = await self._least_busy()
            began = member.rests
            member.in_flight += 1
            member.calls += 1
            try:
                generation = await member.model.generate(messages, params)
            except RefusedError:  # about the request, not about the endpoint
                raise
            except ModelError as error:
                failures += 1
                member.failed(error, began, self._clock())
                if failures >= self._retries + len(self._members) or self._is_hopeless():
                    raise self._commonest_error() from error
            else:
                member.succeeded(began)
                usage = replace(generation.usage, retries=generation.usage.retries + failures)
                return replace(generation, model=self.spec, usage=usage, latency=time.perf_counter() - started)
            finally:
                member.in_flight -= 1

    async def aclose(self) -> None:
        await close_all([member.model for member in self._members])

    async def _least_busy(self) -> _Member:
        """Return the endpoint for the next call; wait if all of them rest."""
        while True:
            now = self._clock()
            awake = [member for member in self._members if member.until <= now]
            if awake:
                return min(awake, key=lambda member: (member.in_flight, member.calls))
            await self._sleep(min(member.until for member in self._members) - now)

    def _is_hopeless(self) -> bool:
        """Whether no endpoint can work without a change by the user."""
        return all(getattr(member.error, "permanent", False) for member in self._members)

    def _commonest_error(self) -> EndpointError:
        """Return the error that most of the endpoints have; their messages differ in the address only."""
        errors = [(str(member.error), member) for member in self._members if member.error is not None]
        kinds = [text.replace(member.endpoint, "") for text, member in errors]
        commonest = Counter(kinds).most_common(1)[0][0]
        text = errors[kinds.index(commonest)][0]
        many = f"{len(errors)} of the {len(self._members)} endpoints of {self.spec} fail"
        return EndpointError(f"{many}. {text}", permanent=self._is_hopeless())


def load_pool(factory: Callable[[str, ModelOptions], Model], name: str, options: ModelOptions) -> PoolModel:
    """Load a model at each address of `base_url`. The pool repeats calls, so that its members need not."""
    addresses = (options.base_url or "").split(",")
    models = [factory(name, replace(options, base_url=address, retries=0)) for address in addresses]
    return PoolModel(models, options.retries)
