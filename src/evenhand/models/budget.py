"""Prices and budgets: counts the cost of calls and stops a run before it exceeds its budget."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from evenhand.core.errors import BudgetExhausted, EvenhandError, ModelError, UsageError
from evenhand.core.events import IN_VAIN, calling, held
from evenhand.core.types import Generation, Message, Params, Price, Usage, token_count
from evenhand.models.base import Model, WrappedModel, all_messages, estimate_tokens

_DEFAULT_REPLY = 512
"""Tokens reserved for a reply if the request sets no maximum."""
_NOTHING = Usage()


FREE = Price(0.0, 0.0)
DISCOUNT = 0.5
"""What a request in a batch costs, as a share of its price alone: so at OpenAI and at Anthropic."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that may be spent; None means no limit."""

    calls: int | None = None
    tokens: int | None = None
    money: float | None = None

    @classmethod
    def parse(cls, texts: Sequence[str]) -> Limits:
        """Parse budgets such as `500 calls`, `2M tokens`, `$5` or `5 usd`; several may be given."""
        limits = cls()
        for text in texts:
            if match := re.fullmatch(r"\$([\d.]+)|([\d.]+) ?usd", text.strip(), re.IGNORECASE):
                limits = replace(limits, money=_number(match.group(1) or match.group(2), "", text))
            elif match := re.fullmatch(r"([\d.]+) ?([kM]?) ?(call|token)s?", text.strip()):
                amount = _number(match.group(1), match.group(2), text)
                limits = replace(limits, **{f"{match.group(3)}s": int(amount)})
            else:
                raise UsageError(f"{text!r} is not a budget; write e.g. '$5', '500 calls' or '2M tokens'.")
        return limits

    def less(self, spent: Usage) -> Limits:
        """Return the limits that remain after `spent`, never below zero."""
        return Limits(
            None if self.calls is None else max(0, self.calls - spent.calls),
            None if self.tokens is None else max(0, self.tokens - spent.tokens),
            None if self.money is None else max(0.0, self.money - (spent.cost or 0.0)),
        )

    def cover(self, used: Usage) -> bool:
        """Return whether they allow as much; a price that is not known counts as nothing."""
        pairs = ((self.calls, used.calls), (self.tokens, used.tokens), (self.money, used.cost or 0.0))
        return all(limit is None or value <= limit for limit, value in pairs)

    def shared(self, count: int) -> Limits:
        """Return the share of one of `count` equal parts, rounded down."""
        return Limits(
            None if self.calls is None else self.calls // count,
            None if self.tokens is None else self.tokens // count,
            None if self.money is None else self.money / count,
        )

    def more(self, spent: Usage) -> Limits:
        """Return the limits of which `spent` is already used up."""
        return Limits(
            None if self.calls is None else self.calls + spent.calls,
            None if self.tokens is None else self.tokens + spent.tokens,
            None if self.money is None else self.money + (spent.cost or 0.0),
        )

    def doubled(self) -> Limits:
        """Return larger limits to go on with, also after a budget of nothing."""
        return Limits(
            None if self.calls is None else 2 * self.calls or 100,
            None if self.tokens is None else 2 * self.tokens or 100_000,
            None if self.money is None else 2 * self.money or 1.0,
        )

    def texts(self) -> list[str]:
        """Return the limits as `parse` reads them."""
        money = [] if self.money is None else [f"${self.money:g}"]
        counts = [
            f"{count} {name}" for name, count in (("calls", self.calls), ("tokens", self.tokens)) if count is not None
        ]
        return [*money, *counts]


def _number(digits: str, suffix: str, text: str) -> float:
    try:
        return float(digits) * {"": 1, "k": 1_000, "M": 1_000_000}[suffix]
    except ValueError as error:
        raise UsageError(f"{text!r} is not a budget; write e.g. '$5', '500 calls' or '2M tokens'.") from error


class Budget:
    """Counts what is spent and what is reserved for calls in flight; stops a call that could exceed a limit."""

    def __init__(self, limits: Limits, spent: Usage | None = None) -> None:
        self.limits = limits
        self.spent = spent or Usage()
        self._reserved = Usage()
        self._released = asyncio.Event()

    async def reserve(self, estimate: Usage) -> None:
        """Reserve the estimate, or raise BudgetExhausted.

        Calls in flight usually use less than they reserved, so a call that does not fit waits for them first.
        """
        while (exceeded := self._exceeded(estimate)) is not None:
            if self._reserved.calls == 0:
                raise BudgetExhausted(exceeded)
            await self._released.wait()
        self._reserved += estimate

    def _exceeded(self, estimate: Usage) -> str | None:
        after = self.spent + self._reserved + estimate
        for name, limit, value in (
            ("calls", self.limits.calls, after.calls),
            ("tokens", self.limits.tokens, after.tokens),
            ("money", self.limits.money, after.cost),
        ):
            if limit is None:
                continue
            if value is None:
                raise UsageError(
                    "This run has made calls whose price is not known, so it cannot have a budget in money; "
                    "limit calls or tokens instead."
                )
            if value > limit:
                return f"the next call could exceed the budget of {limit:g} {name}"
        return None

    def charge(self, estimate: Usage, actual: Usage) -> None:
        """Release the reservation of a finished call and count what it used."""
        self.spent += actual
        if estimate.calls:  # without a limit nothing is reserved
            self._reserved = _minus(self._reserved, estimate)
            self._released.set()
            self._released = asyncio.Event()


def _minus(left: Usage, right: Usage) -> Usage:
    cost = None if left.cost is None or right.cost is None else left.cost - right.cost
    return replace(
        left,
        calls=left.calls - right.calls,
        prompt_tokens=left.prompt_tokens - right.prompt_tokens,
        completion_tokens=left.completion_tokens - right.completion_tokens,
        cost=cost,
    )


@contextmanager
def charged_in_vain(
    prompt: Callable[[], int],
    charge: Callable[[Usage], object],
    again: Callable[[], Awaitable[None]] | None = None,
    *,
    cancelled: bool = False,
) -> Generator[None]:
    """Charge what an endpoint bills without an answer: the tokens of prompts that it has read, and earlier requests.

    Args:
        again: Awaited before an attempt is repeated.
        cancelled: Whether a cancelled call is charged, too.
    """

    async def repeated(error: ModelError) -> None:
        charge((error.spent or _NOTHING) + Usage(prompt_tokens=prompt() if error.was_read else 0))
        if again is not None:
            await again()

    try:
        with held(IN_VAIN, repeated):
            yield
    except ModelError as error:
        if error.was_read or error.spent:
            charge((error.spent or _NOTHING) + (Usage(1, prompt()) if error.was_read else _NOTHING))
        raise
    except asyncio.CancelledError:
        if cancelled:
            charge(Usage(1, prompt()))
        raise


class MeteredModel(WrappedModel):
    """A model whose calls are priced and charged to a budget."""

    def __init__(self, inner: Model, price: Price | None, budget: Budget) -> None:
        super().__init__(inner)
        self._price = price or (FREE if inner.free else None)
        self._budget = budget
        self._limited = budget.limits != Limits()
        if self._price is None and budget.limits.money is not None:
            raise UsageError(
                f"A budget in money needs prices: pass --price {self.spec}=INPUT/OUTPUT (per million tokens)."
            )

    async def generate(self, messages: Sequence[Message], params: Params) -> Generation:
        estimate = self._estimate(messages, params) if self._limited else _NOTHING
        reserved = spent = _NOTHING
        turn = asyncio.Lock()

        async def reserve() -> None:
            nonlocal reserved
            async with turn:  # a call may send several requests, and they share what is reserved
                if reserved is _NOTHING:
                    await self._budget.reserve(estimate)
                    reserved = estimate

        def charge(used: Usage) -> None:
            nonlocal reserved, spent
            used = self._priced(used)
            self._budget.charge(reserved, used)
            reserved, spent = _NOTHING, used if spent is _NOTHING else spent + used

        again = reserve if self._limited else None
        if again is not None:
            await again()
        try:
            with calling(), charged_in_vain(lambda: _prompt_tokens(messages, params), charge, again):
                generation = await self.inner.generate(messages, params)
            charge(_counted(messages, generation))
        except EvenhandError as error:
            error.spent = None if spent is _NOTHING else spent
            raise
        finally:
            if reserved is not _NOTHING:
                self._budget.charge(reserved, _NOTHING)
        # Not by `replace`, which takes five times as long.
        return Generation(
            generation.completions,
            generation.model,
            spent,
            generation.latency,
            generation.cached,
            generation.fingerprint,
            generation.recorded,
        )

    def _estimate(self, messages: Sequence[Message], params: Params) -> Usage:
        prompt = _prompt_tokens(messages, params)
        room = 0 if params.max_tokens_exact else self.inner.room
        reply = 0 if params.given else ((params.max_tokens or _DEFAULT_REPLY) + room) * params.n
        return self._priced(Usage(calls=1, prompt_tokens=prompt, completion_tokens=reply))

    def _priced(self, usage: Usage) -> Usage:
        cost = None if self._price is None else self._price.of(usage)
        return usage if cost == usage.cost else replace(usage, cost=cost)


def _prompt_tokens(messages: Sequence[Message], params: Params) -> int:
    return sum(estimate_tokens(message.content) + 4 for message in all_messages(messages, params))


def _counted(messages: Sequence[Message], generation: Generation) -> Usage:
    """Return the usage; if the server reports no tokens they are estimated, or a token budget would never end."""
    usage = generation.usage
    for name in ("prompt_tokens", "completion_tokens", "thought_tokens"):
        if (value := token_count(said := getattr(usage, name))) != said:
            usage = replace(usage, **{name: value})
    if usage.tokens or not usage.calls:
        return usage
    return replace(
        usage,
        prompt_tokens=sum(estimate_tokens(message.content) for message in messages) * usage.calls,
        completion_tokens=sum(estimate_tokens(each.text + each.thought) for each in generation.completions),
    )
