"""Several endpoints behind one name: each call goes to the least busy one, and those that fail rest for a while."""

from __future__ import annotations

import asyncio
import contextlib
import math
import sys
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Self, TypeVar

from evenhand.core.errors import EndpointError, ModelError
from evenhand.core.events import repeated
from evenhand.core.http import Clock, RetryPolicy, Sleep
from evenhand.core.types import Generation, Message, Params
from evenhand.models.base import Feature, Model, ModelOptions, close_all

T = TypeVar("T")

SHORTEST_REST, LONGEST_REST = 1.0, 60.0
"""Seconds; the rest doubles with each failure after it, until a call succeeds."""
LONGEST_PAUSE = 5.0
"""Seconds; a call that would have to wait longer for its next attempt fails."""


class NoEndpointError(EndpointError):
    """All endpoints rest; the first is back after `wait` seconds."""

    def __init__(self, wait: float) -> None:
        super().__init__(f"All endpoints rest after failures; the first is tried again in {wait:.1f} s.")
        self.wait = wait


class Breaker:
    """Opens after `most` failures in a row, if they took `seconds`; under load, a few in a row mean little.

    The endpoint rests, each time twice as long, until a call succeeds. Calls that were in flight together when it
    opened count as one failure.
    """

    def __init__(self, most: int = 1, seconds: float = 0.0) -> None:
        self.error: ModelError | None = None
        """The last error, if no call has succeeded since."""
        self.until = -math.inf
        """When the rest ends."""
        self._trial = False
        self._most = most
        self._seconds = seconds
        self._since = 0.0
        """When the first of the failures in a row came."""
        self._failures = 0
        self._rests: int = 0
        self._epoch: int = 0

    @property
    def is_open(self) -> bool:
        """Whether no call has succeeded since it opened; after each rest there is a trial."""
        return self._rests > 0

    def rests(self, now: float) -> bool:
        """Whether no call may begin."""
        return self._trial or self.until > now

    def began(self, *, one_trial: bool) -> int:
        """Record the begin of a call and return its epoch; with `one_trial`, the call after a rest is the only one."""
        self._trial = one_trial and self.is_open
        return self._epoch

    def abandoned(self, epoch: int) -> None:
        """Record the end of a call that shows nothing about the endpoint."""
        if epoch == self._epoch:
            self._trial = False

    def failed(self, error: ModelError, epoch: int, now: float, retry_after: float = 0.0) -> bool:
        """Record a failure and return whether it opened the breaker."""
        self.error = error
        if retry_after:
            self.until = max(self.until, now + min(retry_after, LONGEST_REST))
        if epoch != self._epoch:
            return False
        if not self._failures:
            self._since = now
        self._failures += 1
        self._trial = False
        if not self._rests and (self._failures < self._most or now - self._since < self._seconds):
            return False
        self.until = max(self.until, now + min(LONGEST_REST, SHORTEST_REST * 2 ** min(self._rests, 16)))
        self._epoch += 1
        self._rests += 1
        self._failures = 0
        return self._rests == 1

    def succeeded(self, epoch: int) -> bool:
        """Record a success and return whether it closed the breaker."""
        if epoch != self._epoch:
            return False
        was_open = self.is_open
        self.error, self._failures, self._rests, self._trial = None, 0, 0, False
        return was_open


class RetryBudget:
    """Allows retries of a share of the recent calls, and a few more, so that retries do not multiply an outage."""

    share, least, seconds = 0.2, 10.0, 10.0

    def __init__(self) -> None:
        self._calls = self._retries = 0.0
        self._at = -math.inf

    def add_call(self, now: float) -> None:
        self._forget(now)
        self._calls += 1

    def spend(self, now: float) -> bool:
        """Return whether a retry is allowed, and count it if so."""
        self._forget(now)
        if self._retries + 1 > self.least + self.share * self._calls:
            return False
        self._retries += 1
        return True

    def _forget(self, now: float) -> None:
        kept = math.exp((self._at - now) / self.seconds)
        self._calls, self._retries, self._at = self._calls * kept, self._retries * kept, now


@dataclass(slots=True, eq=False)
class Endpoint:
    """One of the endpoints: its limits and its state."""

    name: str = ""
    priority: int = 0
    """Lower ones are preferred."""
    concurrency: int = sys.maxsize
    breaker: Breaker = field(default_factory=Breaker)
    in_flight: int = 0
    calls: int = 0

    @property
    def is_full(self) -> bool:
        return self.in_flight >= self.concurrency


class Attempt:
    """A call at one endpoint, which counts as in flight until `end`."""

    def __init__(self, group: Failover, endpoint: Endpoint, now: float, *, one_trial: bool) -> None:
        self.endpoint = endpoint
        self.failures = 0
        """Attempts of the same call that failed before."""
        self.answered = False
        """Whether the endpoint has begun to answer."""
        self._group = group
        self._began = now
        self._epoch = endpoint.breaker.began(one_trial=one_trial)
        endpoint.in_flight += 1
        endpoint.calls += 1

    def end(self, error: BaseException | None = None) -> None:
        self.endpoint.in_flight -= 1
        self._group.ended(self, error, self._epoch, self._began)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.end(error)


Report = Callable[[Attempt, BaseException | None, bool], None]
"""(attempt, error, whether the breaker opened or closed): how an attempt ended."""


class Failover:
    """Makes each call at the best endpoint: the preferred ones first, and the least busy one of these.

    A call that fails is tried at each of the other endpoints, and `retries` times more. `patience` is a time in
    seconds: a call that is cancelled after it, without an answer, counts as failed.
    """

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        retries: int,
        *,
        patient: bool = False,
        patience: float = math.inf,
        report: Report | None = None,
        counts: Callable[[Attempt, ModelError], bool] | None = None,
        sleep: Sleep | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.endpoints = endpoints
        self._retries = retries
        self._patient = patient
        self._patience = patience
        self._report = report
        self._counts = counts
        """Whether an error is the endpoint's fault; without a classifier, every error is."""
        self._sleep = sleep
        self._clock = clock or (lambda: asyncio.get_running_loop().time())
        self._backoff = RetryPolicy(retries, ceiling=LONGEST_PAUSE)
        self._budget = None if patient else RetryBudget()
        self._queue: deque[asyncio.Future[Attempt]] = deque()

    @property
    def is_hopeless(self) -> bool:
        """Whether no endpoint can work without a change by the user."""
        return all(getattr(endpoint.breaker.error, "permanent", False) for endpoint in self.endpoints)

    async def call(self, use: Callable[[int], Awaitable[T]]) -> tuple[T, int]:
        """Return what `use` makes of the endpoint with this number, and how many attempts failed before."""
        value, attempt = await self.begin(use)
        attempt.end()
        return value, attempt.failures

    async def begin(self, use: Callable[[int], Awaitable[T]]) -> tuple[T, Attempt]:
        """Return what `use` makes of an endpoint, and the attempt, which the caller ends."""
        tried: set[Endpoint] = set()
        failures = 0
        last: ModelError | None = None
        if self._budget is not None:
            self._budget.add_call(self._clock())
        while True:
            try:
                attempt = await self._admitted(tried)
            except NoEndpointError:
                if last is None:
                    raise
                raise last from None
            attempt.failures = failures
            try:
                value = await use(self.endpoints.index(attempt.endpoint))
                attempt.answered = True
                return value, attempt
            except ModelError as error:
                attempt.end(error)
                failures += 1
                tried.add(attempt.endpoint)
                if error.request_at_fault or not await self._may_retry(error, failures, tried):
                    raise
                await repeated(error)
                last = error
            except BaseException as error:
                attempt.end(error)
                raise

    def ended(self, attempt: Attempt, error: BaseException | None, epoch: int, began: float) -> None:
        """Record how an attempt ended, and let others begin."""
        now, breaker = self._clock(), attempt.endpoint.breaker
        changed = False
        if error is None:
            changed = breaker.succeeded(epoch)
        elif isinstance(error, asyncio.CancelledError) and not attempt.answered and now - began >= self._patience:
            changed = breaker.failed(EndpointError("no answer came in time"), epoch, now)
        elif (
            isinstance(error, ModelError)
            and not error.request_at_fault
            and (self._counts is None or self._counts(attempt, error))
        ):
            changed = breaker.failed(error, epoch, now, getattr(error, "retry_after", None) or 0.0)
        else:
            breaker.abandoned(epoch)
        if self._report is not None:
            self._report(attempt, error, changed)
        self._admit()

    async def _may_retry(self, error: ModelError, failures: int, tried: set[Endpoint]) -> bool:
        """Return whether the call may be tried again, after a pause if all endpoints have been tried."""
        if failures >= self._retries + len(self.endpoints) or self.is_hopeless:
            return False
        pause = 0.0
        if all(endpoint in tried for endpoint in self._awake()):
            tried.clear()
            pause = 0.0 if self._patient else self._backoff.delay(failures, self._wait() or None, error)
        if pause > LONGEST_PAUSE or (self._budget is not None and not self._budget.spend(self._clock())):
            return False
        if pause:
            await (self._sleep or asyncio.sleep)(pause)
        return True

    async def _admitted(self, tried: Collection[Endpoint]) -> Attempt:
        """Return an attempt at the best endpoint that was not tried; if all are full, wait for any of them."""
        while True:
            if not self._queue and (best := self._best(tried) or self._best()):
                return self._attempt(best)
            if self._awake():
                break
            if not self._patient:
                raise NoEndpointError(self._wait())
            await (self._sleep or asyncio.sleep)(self._wait())
        turn: asyncio.Future[Attempt] = asyncio.get_running_loop().create_future()
        self._queue.append(turn)
        self._admit()
        try:
            return await turn
        except asyncio.CancelledError as error:
            if turn.cancelled():
                with contextlib.suppress(ValueError):
                    self._queue.remove(turn)
            elif turn.exception() is None:  # admitted at the same moment
                turn.result().end(error)
            raise

    def _admit(self) -> None:
        """Give free places to waiting calls, first come, first served; none waits for endpoints that rest."""
        while self._queue:
            if best := self._best():
                turn = self._queue.popleft()
                if not turn.done():
                    turn.set_result(self._attempt(best))
            elif not self._awake():
                turn = self._queue.popleft()
                if not turn.done():
                    turn.set_exception(NoEndpointError(self._wait()))
            else:
                return

    def _attempt(self, endpoint: Endpoint) -> Attempt:
        return Attempt(self, endpoint, self._clock(), one_trial=not self._patient)

    def _awake(self) -> list[Endpoint]:
        now = self._clock()
        return [endpoint for endpoint in self.endpoints if not endpoint.breaker.rests(now)]

    def _best(self, tried: Collection[Endpoint] = ()) -> Endpoint | None:
        free = [endpoint for endpoint in self._awake() if not endpoint.is_full and endpoint not in tried]
        return min(free, key=_rank, default=None)

    def _wait(self) -> float:
        """Return the seconds until the first endpoint is back; 0 if one is there."""
        return max(0.0, min(endpoint.breaker.until for endpoint in self.endpoints) - self._clock())


def _rank(endpoint: Endpoint) -> tuple[int, float, int]:
    """The smallest gets the next call."""
    return endpoint.priority, endpoint.in_flight / endpoint.concurrency, endpoint.calls


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

    async def settled(self) -> None:
        for model in self._models:
            await model.settled()

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
        found = EndpointError(f"{many}. {text}", permanent=self._failover.is_hopeless)
        found.was_read, found.spent = last.was_read, last.spent
        return found


def _address(model: Model) -> str:
    return str(model.fingerprint().get("endpoint"))


def load_pool(factory: Callable[[str, ModelOptions], Model], name: str, options: ModelOptions) -> PoolModel:
    """Load a model at each address of `base_url`. The pool repeats calls, so that its members need not."""
    models = [factory(name, each) for each in single_options(options)]
    return PoolModel(models, options.retries)


def single_options(options: ModelOptions) -> list[ModelOptions]:
    return [replace(options, base_url=address, retries=0) for address in (options.base_url or "").split(",")]
