"""Several endpoints behind one name: each call goes to the least busy one, and those that fail rest for a while."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from evenhand.core.errors import EndpointError, ModelError
from evenhand.core.http import Clock, Sleep
from evenhand.core.types import Generation, Message, Params
from evenhand.models.base import Feature, Model, ModelOptions, close_all
from evenhand.models.failover import Endpoint, Failover


class PoolModel(Model):
    """A model behind several endpoints; a call is tried at each of them, and `retries` times more.

    `failover` has one endpoint for each model; by default, a pool waits as long as all of them rest.
    """

    def __init__(
        self,
        models: Sequence[Model],
        retries: int = 6,
        *,
        failover: Failover | None = None,
        sleep: Sleep | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.spec = models[0].spec
        self.free = all(model.free for model in models)
        self.endpoints = len(models)
        self._models = models
        ours = [Endpoint() for _ in models]
        self._failover = failover or Failover(ours, retries, patient=True, sleep=sleep, clock=clock)

    @property
    def features(self) -> frozenset[Feature]:  # pyright: ignore[reportIncompatibleVariableOverride]
        first, *others = (model.features for model in self._models)
        return first.intersection(*others)

    def fingerprint(self) -> Mapping[str, Any]:
        first = self._models[0].fingerprint()
        return {**first, "spec": self.spec, "endpoint": sorted(map(_address, self._models))}

    def caveats(self) -> Sequence[str]:
        return list(dict.fromkeys(caveat for model in self._models for caveat in model.caveats()))

    def notes(self) -> Sequence[str]:
        return list(dict.fromkeys(note for model in self._models for note in model.notes()))

    def learned(self) -> Mapping[str, Any]:
        found = {_address(model): dict(learned) for model in self._models if (learned := model.learned())}
        return {"endpoints": found} if found else {}

    def recall(self, learned: Mapping[str, Any]) -> None:
        for model in self._models:
            model.recall(learned.get("endpoints", {}).get(_address(model), {}))

    async def generate(self, messages: Sequence[Message], params: Params) -> Generation:
        started = time.perf_counter()
        try:
            generation, failures = await self._failover.call(
                lambda place: self._models[place].generate(messages, params)
            )
        except ModelError as error:
            if error.request_at_fault or len(self._models) == 1:
                raise
            raise self._commonest_error(error) from error
        usage = replace(generation.usage, retries=generation.usage.retries + failures)
        return replace(generation, model=self.spec, usage=usage, latency=time.perf_counter() - started)

    async def aclose(self) -> None:
        await close_all(self._models)

    def _commonest_error(self, last: ModelError) -> ModelError:
        """Return the error that most of the endpoints have; their messages differ in the address only."""
        pairs = zip(self._models, self._failover.endpoints, strict=True)
        errors = [(str(each.breaker.error), _address(model)) for model, each in pairs if each.breaker.error]
        if not errors:
            return last
        kinds = [text.replace(address, "") for text, address in errors]
        commonest = Counter(kinds).most_common(1)[0][0]
        text = errors[kinds.index(commonest)][0]
        many = f"{len(errors)} of the {len(self._models)} endpoints of {self.spec} fail"
        return EndpointError(f"{many}. {text}", permanent=self._failover.is_hopeless)


def _address(model: Model) -> str:
    return str(model.fingerprint().get("endpoint"))


def load_pool(factory: Callable[[str, ModelOptions], Model], name: str, options: ModelOptions) -> PoolModel:
    """Load a model at each address of `base_url`. The pool repeats calls, so that its members need not."""
    models = [factory(name, each) for each in single_options(options)]
    return PoolModel(models, options.retries)


def single_options(options: ModelOptions) -> list[ModelOptions]:
    """Return the options of each endpoint of a pool."""
    return [replace(options, base_url=address, retries=0) for address in (options.base_url or "").split(",")]
